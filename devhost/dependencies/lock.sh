#!/bin/sh
# Writes requirements*.txt, which are installed, from the files that name the wanted versions. Each pins all dependencies, direct and
# indirect, with the hashes of all files that the registry has of them, so that it is the same on every machine and for every platform.
# Needs a network; arguments go to `uv pip compile`:
#
#   devhost/dependencies/lock.sh                              after a change of a wanted version; every other pin stays
#   devhost/dependencies/lock.sh --upgrade                    the newest versions of all packages whose version no file names
#   devhost/dependencies/lock.sh --upgrade-package NAME       of this package alone
set -eu
CDPATH='' cd "$(dirname "$0")/../.."
for argument; do
  case $argument in
    # uv would print its own help once for each file, and the files would be written.
    -h | --help)
      sed -n '1d; s/^# \{0,1\}//p; /^set /q' devhost/dependencies/lock.sh
      exit
      ;;
  esac
done
UV=.venv/bin/uv

# lock OUT SOURCE ARGUMENT...: pip and uv both heed the line --require-hashes; without it uv would take a line without a hash.
lock() {
  out=$1 source=$2
  shift 2
  { [ ! -f "$out" ] || grep -v '^--require-hashes$' "$out"; } >"$work/$out"
  "$UV" pip compile --quiet --system-certs --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
    --output-file "$work/$out" "$source" "$@"
  {
    echo "# Written by \`make lock\` from $source: every package that is installed, at its version, with the hashes of its files."
    echo --require-hashes
    cat "$work/$out"
  } >"$work/whole"
  cp "$work/whole" "$out"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
lock requirements.txt requirements.in --python-version 3.13 "$@"
# pip comes with the virtual environment; pip must not replace itself while it runs.
# httpx2-jsfetch is for Python in a browser.
lock requirements-dev.txt requirements-dev.in --python-version 3.13 --constraint requirements.txt --no-emit-package pip \
  --no-emit-package httpx2-jsfetch "$@"
for group in run docs audit; do
  lock "requirements-$group.txt" "requirements-$group.in" --python-version 3.13 --constraint requirements-dev.txt --no-emit-package pip "$@"
done
lock requirements-build.txt requirements-build.in --python-version 3.12 --constraint requirements-dev.txt "$@"
lock requirements-agent.txt pyproject.toml --extra cli --extra node --python-version 3.12 --constraint requirements-dev.txt "$@"
lock requirements-generators.txt requirements-generators.in --python-version 3.13 --no-deps "$@"
lock requirements-nodejs.txt requirements-nodejs.in --python-version 3.13 "$@"
