#!/usr/bin/env bash
# Every test that is not marked long, in two runs of pytest at once.
#   tests/run.sh JOBS [further arguments of pytest]
# The tests that drive processes, browsers and sockets wait most of their time, and fail where they get no processor: they run
# in JOBS processes. The others only compute: they run in half as many, at the lowest priority, in the time that the first leave.
set -uo pipefail

jobs=$1
shift
common=(python -m pytest --dist loadfile --no-loadscope-reorder -m "not long")
output=$(mktemp)
computing=

end() {
  # A process that a shell starts in the background does not hear Ctrl-C.
  [ -z "$computing" ] || kill "$computing" 2>/dev/null
  rm -f "$output"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

nice -n 19 "${common[@]}" -n $(((jobs + 1) / 2)) tests/model tests/simulation tests/unit "$@" >"$output" 2>&1 </dev/null &
computing=$!
"${common[@]}" -n "$jobs" tests/browser tests/conformance tests/integration "$@"
driven=$?
echo "tests/run.sh: the tests that only compute (tests/model, tests/simulation, tests/unit):"
wait "$computing"
computed=$?
computing=
cat "$output"

# 5 of pytest: no test was selected, which is an error only where that holds for both.
[ "$driven" != 5 ] || driven=$computed
[ "$computed" != 5 ] || computed=$driven
[ "$driven" != 0 ] || driven=$computed
exit "$driven"
