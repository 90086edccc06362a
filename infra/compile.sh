#!/bin/sh
# Compiles the templates with the real Bicep compiler, where there is one: `bicep`, or the one of the Azure CLI.
set -eu
cd "$(dirname "$0")"

if command -v bicep >/dev/null; then
  build() { bicep build --stdout "$1"; }
elif command -v az >/dev/null; then
  build() { az bicep build --stdout --file "$1"; }
else
  echo "No Bicep compiler here (neither bicep nor az): the templates were NOT compiled."
  exit
fi
for template in main.bicep agent/agent.bicep; do
  echo "compiling infra/$template"
  build "$template" >/dev/null
done
