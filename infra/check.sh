#!/bin/sh
# Checks infra/ with the real Bicep compiler: the form of the files, its linter, and what they deploy. `check.sh write` brings the files
# into that form, and writes the snapshots of what they deploy and the digests of the sources. It needs `bicep` on PATH, or where
# `az bicep install` puts it, and no network.
set -eu
cd "$(dirname "$0")"
mode=${1:-validate}

PATH=$PATH:${HOME:-}/.azure/bin
if ! command -v bicep >/dev/null; then
  echo "No Bicep compiler on PATH: infra/ was NOT checked with it (az bicep install)."
  [ "$mode" = validate ]
  exit
fi
bicep --version

# snapshot FILE MODE: what a deployment with these parameters makes, in a subscription that does not exist.
snapshot() {
  group=
  case $1 in */agent.bicepparam) group='--resource-group nodes' ;; esac
  # shellcheck disable=SC2086
  bicep snapshot "$1" --mode "$2" $group --location westeurope \
    --subscription-id 00000000-0000-0000-0000-000000000001 --tenant-id 00000000-0000-0000-0000-000000000002
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "$mode" = write ]; then
  bicep format --pattern '**/*.bicep'
  bicep format --pattern '**/*.bicepparam'
  for file in snapshots/*.bicepparam; do
    made=${file%.bicepparam}.snapshot.json
    cp "$made" "$work/former" 2>/dev/null || : >"$work/former"
    snapshot "$file" overwrite
    # The compiler writes outputs in any order. A file that differs in nothing else stays as it was.
    for each in "$work/former" "$made"; do tr -d , <"$each" | sort >"$work/$(basename "$each").sorted"; done
    ! cmp -s "$work/former.sorted" "$work/$(basename "$made").sorted" || cp "$work/former" "$made"
  done
  find . -type f ! -name '*.snapshot.json' ! -name sources.sha256 ! -name main.parameters.json ! -name check.sh |
    grep -v -e '^./hooks/' -e '^./agent/kubernetes/' | LC_ALL=C sort | xargs sha256sum >snapshots/sources.sha256
  exit
fi

cp -R . "$work/formatted"
(cd "$work/formatted" && bicep format --pattern '**/*.bicep' && bicep format --pattern '**/*.bicepparam')
diff -r . "$work/formatted" || { echo "infra/: these files are not in the form of 'bicep format'. Run 'make snapshots'." >&2; exit 1; }

for pattern in '**/*.bicep' '**/*.bicepparam'; do bicep lint --no-restore --pattern "$pattern" 2>&1; done >"$work/lint"
[ ! -s "$work/lint" ] || { cat "$work/lint" >&2; echo "infra/: mend these warnings." >&2; exit 1; }

for file in snapshots/*.bicepparam; do
  snapshot "$file" validate || { echo "infra/$file deploys something else now. Read the difference, then run 'make snapshots'." >&2; exit 1; }
done

# refuses PARAMETER VALUE BEGINNING: a deployment with this value must fail, with a message that begins so.
refuses() {
  rm -rf "$work/refused"
  cp -R . "$work/refused"
  sed "s|^param $1 = .*|param $1 = $2|" snapshots/everything.bicepparam >"$work/refused/snapshots/refused.bicepparam"
  ! snapshot "$work/refused/snapshots/refused.bicepparam" overwrite >"$work/said" 2>&1 && grep -q "$3" "$work/said" ||
    { echo "infra/main.bicep deploys $1 = $2: it must refuse this." >&2; exit 1; }
}
refuses furtherSettings "{ OTEL_EXPORTER_OTLP_HEADERS: 'authorization=secret' }" 'furtherSettings: the history'
refuses furtherSettings "{ tocsin_admin_key: 'secret' }" 'furtherSettings: the history'
refuses furtherSettings "{ TocsinStorage: 'DefaultEndpointsProtocol=https;AccountName=a;AccountKey=secret' }" 'furtherSettings: the history'
refuses location "'ukwest'" 'redundancy: ukwest has no availability zones'
refuses standbyLocation "'westus'" 'redundancy: westus has no availability zones'
refuses redundancy "'Standard_LRS'" 'zoneRedundant: without'

echo "infra/: form, lint and snapshots are right."
