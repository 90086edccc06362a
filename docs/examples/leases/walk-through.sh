#!/usr/bin/env bash
# Two servers share the partitions of a fleet over HTTP, as docs/reference/fleets.md describes it.
# Run `make run` in one terminal, and this script in another one, on Linux. A line that begins with #> is the answer that is printed.
# Step by step by hand, be quick: about ten seconds after its last heartbeat a server is fenced.
set -euo pipefail
api=http://localhost:7071/api/v1/fleets/search
call() { curl -sS -X "$1" "$api$2" -H 'Authorization: Bearer local-demo-key' ${3:+-H 'Content-Type: application/json' -d "$3"}; }
call PUT '' '{"partitions": 4, "profile": {"beat": "PT1S", "validity": "PT3S", "takeover": "PT4.5S"}}' > /dev/null

# Two servers, `a` and `b`, register with their first heartbeat, each with its own incarnation:
a=$(cat /proc/sys/kernel/random/uuid) b=$(cat /proc/sys/kernel/random/uuid)
beat() { call POST "/nodes/$1/beat" "{\"incarnation\": \"$2\", \"seq\": $3}"; }
beat a $a 1
beat b $b 1
#> {"seq": 1, "validity_ms": 3000, "beat_ms": 1000, "state": "live", "held": {}, "assign": [], "release": [], "generation": 1, "partitions": 4}
#> {"seq": 1, "validity_ms": 3000, "beat_ms": 1000, "state": "live", "held": {}, "assign": [], "release": [], "generation": 1, "partitions": 4}

# Both claim partition 1, and one of them gets it:
claim() { call POST /leases/claim "{\"node\": \"$1\", \"incarnation\": \"$2\", \"partitions\": $3}"; }
claim a $a '[0, 1]'
claim b $b '[1, 2, 3]'
#> {"claimed": [{"partition": 0, "epoch": 1}, {"partition": 1, "epoch": 1}], "refused": []}
#> {"claimed": [{"partition": 2, "epoch": 1}, {"partition": 3, "epoch": 1}], "refused": [{"partition": 1, "reason": "owned"}]}

# Clients ask which server has which partition:
call GET /routes
#> {"generation": 1, "owners": {"a": [0, 1], "b": [2, 3]}, "unowned": [], "taking": null}

# `b` gives partition 3 back; its next owner can claim it at once, under the next epoch:
call POST /leases/3/release "{\"node\": \"b\", \"incarnation\": \"$b\", \"epoch\": 1}"
claim a $a '[3]'
#> {"claimed": [{"partition": 3, "epoch": 2}], "refused": []}

# Now `a` sends no more heartbeats, and `b` goes on.
# After T and 5 seconds of the storage service's own time, the app fences `a`:
( seq=2; while sleep 1; do beat b $b $seq; seq=$((seq + 1)); done ) > /dev/null &
beating=$!
until call GET /leases/0 | grep -q unowned; do sleep 1; done
claim b $b '[0, 1]'
kill $beating
#> {"claimed": [{"partition": 0, "epoch": 2}, {"partition": 1, "epoch": 2}], "refused": []}

# Then `a` wakes up, and the store refuses its requests:
beat a $a 2
#> {"type": "https://tocsin.dev/problems/fenced", "title": "Fenced", "status": 409, "detail": "this incarnation is over: stop acting on all partitions, and register a new incarnation with seq 1", "instance": "/api/v1/fleets/search/nodes/a/beat"}

# With a new incarnation it takes part:
a=$(cat /proc/sys/kernel/random/uuid)
beat a $a 1
claim a $a '[3]'
#> {"seq": 1, "validity_ms": 3000, "beat_ms": 1000, "state": "live", "held": {}, "assign": [], "release": [], "generation": 1, "partitions": 4}
#> {"claimed": [{"partition": 3, "epoch": 3}], "refused": []}
