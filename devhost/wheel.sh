#!/bin/sh
# Builds the wheel into dist/, in place of older ones. It needs Python 3.12 or newer with pip, and no set-up.
# The build backend is compared with the hashes of requirements-build.txt and kept in .tools/, so that a repeat needs no network.
#
#   PYTHON=/path/to/python3   take this interpreter
set -eu
CDPATH='' cd "$(dirname "$0")/.."

fail() { printf 'wheel: %s\n' "$@" >&2; exit 1; }

# Sets `python`. That a command exists is not enough: a pyenv shim of a version that is not activated only fails.
find_python() {
  pyenv=${PYENV_ROOT:-${HOME:-}/.pyenv}/versions
  if [ -n "${PYTHON:-}" ]; then
    set -- "$PYTHON"
  else
    set -- .venv/bin/python python3 python python3.13 python3.12 python3.14 "$pyenv"/3.1[2-9]*/bin/python3
  fi
  for python; do
    if "$python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then return; fi
  done
  fail "Python 3.12 or newer with pip is missing. Looked for: $*" "Install it, or name it: make wheel PYTHON=/path/to/python3"
}

find_python
backend=.tools/build-$(cksum <requirements-build.txt | tr ' ' -)
if [ ! -d "$backend" ]; then
  mkdir -p .tools
  work=$(mktemp -d .tools/fetched-XXXXXX)
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM HUP
  # The packages are pure Python: each interpreter can use them.
  "$python" -m pip install --quiet --disable-pip-version-check --no-input --no-compile --root-user-action=ignore --require-hashes --only-binary :all: \
    --target "$work/backend" -r requirements-build.txt || fail "pip could not install the build backend (requirements-build.txt)"
  for older in .tools/build-*; do [ "$older" = "$backend" ] || rm -rf "$older"; done
  # Another build may have been faster.
  [ -d "$backend" ] || mv "$work/backend" "$backend"
fi
rm -f dist/tocsin-*.whl
PYTHONPATH=$backend "$python" -m hatchling build --target wheel --directory dist >/dev/null
ls dist/tocsin-*.whl
