#!/usr/bin/env bash
# Three replicas take turns for their checkpoints over HTTP, as docs/reference/checkpoints.md describes it.
# Run `make run` in one terminal, and this script in another one, on Linux. To repeat it, use another fleet than `store`.
# A line that begins with #> is the answer that is printed; milliseconds differ from run to run.
set -euo pipefail
APP=http://localhost:7071/api/v1/fleets/store
KEY='Authorization: Bearer local-demo-key'
post() { curl -sS -w '\n' "$APP/$1" -H "$KEY" -H 'Content-Type: application/json' -d "$2"; }
mono() { awk '{ printf "%.0f", $1 * 1000 }' /proc/uptime; }
curl -sS -w '\n' -X PUT $APP -H "$KEY" -H 'Content-Type: application/json' -d '{"partitions": 1, "checkpoints": {"timeout": {"initial": "PT5M"}}}'

# Three members report; `term` orders claims to be primary, and `mono_ms` is a clock that never steps back.
# The first secondary that asks gets the turn:
post replicas/a/report '{"seq": 1, "role": "primary", "term": 7, "applied": 81231, "last_checkpoint": 0, "taking": null, "mono_ms": '$(mono)'}'
post replicas/b/report '{"seq": 1, "role": "secondary", "term": 7, "applied": 81230, "last_checkpoint": 0, "taking": null, "mono_ms": '$(mono)'}'
post replicas/c/report '{"seq": 1, "role": "secondary", "term": 7, "applied": 81229, "last_checkpoint": 0, "taking": null, "mono_ms": '$(mono)'}'
#> {"turn":null,"revoked":[],"report_ms":5000}
#> {"turn":{"epoch":1,"limit_ms":208600},"revoked":[],"report_ms":5000}
#> {"turn":null,"revoked":[],"report_ms":5000}

# `b` has 208.6 s for its checkpoint, counted from the moment it sent that report, and sends `taking` with each report until it is over.
# Twenty seconds later it publishes:
sleep 20
post replicas/b/report '{"seq": 2, "role": "secondary", "term": 7, "applied": 81230, "last_checkpoint": 0, "taking": {"epoch": 1}, "mono_ms": '$(mono)'}'
post turns/1/publish '{"node": "b", "sequence": 81230, "location": "https://backups.example/81230", "bytes": 52428800}'
post replicas/b/report '{"seq": 3, "role": "secondary", "term": 7, "applied": 81230, "last_checkpoint": 81230, "taking": null, "ready": false, "mono_ms": '$(mono)'}'
post replicas/c/report '{"seq": 2, "role": "secondary", "term": 7, "applied": 81231, "last_checkpoint": 0, "taking": null, "mono_ms": '$(mono)'}'
#> {"turn":null,"revoked":[],"report_ms":5000}
#> {"latest":true}
#> {"turn":null,"revoked":[],"report_ms":5000}
#> {"turn":{"epoch":2,"limit_ms":162449},"revoked":[],"report_ms":5000}

# `b` wants no other turn for now (`ready`), so `c` gets the next one, a shorter one, because the former turn ended early.
# Twenty seconds later an operator revokes it:
sleep 20
post turns/2/revoke '{"note": "its disk is full"}'
post turns/2/publish '{"node": "c", "sequence": 81231, "location": "https://backups.example/81231", "bytes": 52428800}'
post replicas/c/report '{"seq": 3, "role": "secondary", "term": 7, "applied": 81231, "last_checkpoint": 0, "taking": {"epoch": 2}, "mono_ms": '$(mono)'}'
#> {"free_after_ms":214071}
#> {"type":"https://tocsin.dev/problems/late","title":"Late","status":409,"detail":"turn 2 is over: its checkpoint does not count","instance":"/api/v1/fleets/store/turns/2/publish"}
#> {"turn":null,"revoked":[2],"report_ms":5000}
