#!/bin/sh
# Installs the agent on a node, or brings it up to date: the wheel in a virtual environment, its settings, its key, its unit.
# Run as root, by cloud-init or by the VM extension (agent.bicep fills the names in). Safe to repeat. The machine's own identity
# fetches wheel and key; nothing here is a secret, and no secret is shown or put into an argument.
set -eu
umask 077

WHEEL_URL='@WHEEL_URL@'
WHEEL_SHA256='@WHEEL_SHA256@'
VAULT_URL='@VAULT_URL@'
SECRET_PREFIX='@SECRET_PREFIX@'
CONFIG='@CONFIG@'

# A new machine's role takes minutes to be known everywhere.
TRIES=${TOCSIN_TRIES:-90}
PAUSE=${TOCSIN_PAUSE:-10}
ROOT=${TOCSIN_ROOT:-}
HOME_DIR=$ROOT/opt/tocsin
ETC=$ROOT/etc/tocsin

say() { printf 'tocsin: %s\n' "$1"; }
fail() { printf 'tocsin: %s\n' "$1" >&2; exit 1; }

# Sets `python` to one that the wheel takes and that can make virtual environments.
find_python() {
  for python in python3.12 python3.13 python3.14; do
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then return; fi
  done
  return 1
}

metadata() { curl -fsS --noproxy '*' -H Metadata:true "http://169.254.169.254/metadata/$1"; }

# get RESOURCE URL FILE: with a token of the machine's identity for the resource, which goes to curl over a pipe.
get() {
  metadata "identity/oauth2/token?api-version=2018-02-01&resource=$1" |
    "$python" -c 'import json, sys; print("header = \"Authorization: Bearer %s\"" % json.load(sys.stdin)["access_token"])' |
    curl -fsS -K - -H 'x-ms-version: 2020-12-06' -o "$3" "$2"
}

# try GET...: again and again, for as long as a role may take.
try() {
  left=$TRIES
  until get "$@"; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || fail "$2 cannot be fetched: has this machine's identity its role, and is there such a thing?"
    sleep "$PAUSE"
  done
}

[ "$(id -u)" = 0 ] || [ -n "$ROOT" ] || fail "run this as root"
if ! find_python; then
  say "installing Python 3.12"
  apt-get update -q && apt-get install -q -y python3.12 python3.12-venv || :
  find_python || fail "Python 3.12 or newer is missing, and this machine's packages do not have it"
fi
command -v curl >/dev/null || fail "curl is missing"

mkdir -p "$HOME_DIR" "$ETC"
chmod 755 "$HOME_DIR"
# The agent refuses settings that another user could change, whoever made the folder.
[ "$(id -u)" != 0 ] || chown root "$HOME_DIR" "$ETC"
chmod go-w "$ETC"
# One at a time: cloud-init and the extension may come together, and each removes what it takes for the remains of others.
exec 9>"$HOME_DIR/install.lock"
flock 9
# For the next time, when the key or the wheel is a new one: the VM extension keeps what it ran where nobody looks.
[ "$0" -ef "$HOME_DIR/install.sh" ] || install -m 700 "$0" "$HOME_DIR/install.sh"
work=$(mktemp -d)
new=$ETC/new
unused=
trap 'rm -rf "$work" "$new" ${unused:+"$unused"}' EXIT

wheel=$work/$(basename "$WHEEL_URL")
try https://storage.azure.com/ "$WHEEL_URL" "$wheel"
echo "$WHEEL_SHA256  $wheel" | sha256sum -c - >/dev/null || fail "the wheel is not the one that was asked for: its SHA-256 differs"

vm=$(metadata 'instance/compute/name?api-version=2021-02-01&format=text')
# Names of secrets have no dot and no underscore, as those of a scale set's machines do. No two machines share a secret.
secret=$SECRET_PREFIX$(printf %s "$vm" | sed 's/--/--h/g; s/_/--u/g; s/[.]/--d/g')
try https://vault.azure.net "$VAULT_URL/secrets/$secret?api-version=7.4" "$work/secret"
"$python" -c 'import json, sys; sys.stdout.write(json.load(sys.stdin)["value"])' <"$work/secret" >"$work/agent.key"

# In a folder of its own: the agent in use stays whole until the unit names the new one, whenever this script is ended.
venv=$(mktemp -d "$HOME_DIR/venv-XXXXXX")
unused=$venv
"$python" -m venv "$venv"
# What the wheel needs comes at the versions and with the hashes that stand in the wheel, whose own hash was checked above; nothing is built here.
"$python" -c 'import sys, zipfile; sys.stdout.write(zipfile.ZipFile(sys.argv[1]).read("tocsin/requirements.txt").decode())' "$wheel" >"$work/requirements.txt"
pip() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@"; }
pip --require-hashes --only-binary :all: -r "$work/requirements.txt"
# By force: a new wheel can have the version of the one that is there.
pip --no-deps --no-index --force-reinstall "$wheel"
# Checked beside the files in use: with wrong settings or a wrong key in their place, no agent would start again.
rm -rf "$new"
mkdir "$new"
mv "$work/agent.key" "$new/agent.key"
printf '%s' "$CONFIG" | base64 -d >"$new/agent.toml"
chmod 600 "$new/agent.key" "$new/agent.toml"
"$venv/bin/tocsin" agent --config "$new/agent.toml" --check || fail "the new settings or key are wrong: nothing in $ETC is changed"

# Each step replaces one file, and the agent that a boot between two of them starts is whole. A new agent takes former settings.
unit=$ROOT/etc/systemd/system/tocsin-agent.service
mkdir -p "$(dirname "$unit")"
"$venv/bin/tocsin" agent --config "$ETC/agent.toml" --unit >"$unit.new"
chmod 644 "$unit.new"
unused=
mv "$unit.new" "$unit"
mv "$new/agent.key" "$ETC/agent.key"
mv "$new/agent.toml" "$ETC/agent.toml"
# Former installers made a folder.
[ -L "$HOME_DIR/venv" ] || [ ! -e "$HOME_DIR/venv" ] || mv "$HOME_DIR/venv" "$HOME_DIR/venv-former"
ln -s "$(basename "$venv")" "$new/venv"
mv -T "$new/venv" "$HOME_DIR/venv"
systemctl daemon-reload
systemctl enable --quiet tocsin-agent
systemctl restart tocsin-agent
for former in "$HOME_DIR"/venv-*; do
  [ "$former" = "$venv" ] || rm -rf "$former"
done
say "the agent runs; \`journalctl -u tocsin-agent\` shows what it sees"
