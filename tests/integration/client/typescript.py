"""Compiles and runs clients/typescript and its tests, and what openapi-typescript makes of the document."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

from devhost.azurite import ROOT, find_node
from shared.core import signing
from tests import waiting

SOURCES = ROOT / "clients" / "typescript"
DOCUMENT = ROOT / "docs" / "reference" / "openapi.json"
COOKBOOK = ROOT / "docs" / "examples" / "cookbook" / "typescript"
PAGE = ROOT / "docs" / "how-to" / "call-from-typescript.md"
MODULES = ROOT / "node_modules"


def node(*command: str | Path, **environment: str) -> str:
    """Run node with these arguments and return its output; it must succeed."""
    done = waiting.run([find_node(), *map(str, command)], cwd=ROOT, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compiled(folder: Path) -> Path:
    """Type-check the client, its tests, its page, the cookbook and a program with generated types. Return the folder of the JavaScript."""
    for name in ("src", "tests"):
        shutil.copytree(SOURCES / name, folder / name)
    shutil.copy(SOURCES / "package.json", folder)
    shutil.copytree(COOKBOOK, folder / "cookbook", ignore=shutil.ignore_patterns("node_modules"))
    examples = re.findall(r"```ts\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 3
    for number, example in enumerate(examples):
        (folder / "tests" / f"example-{number}.ts").write_text(example)
    node(MODULES / "openapi-typescript" / "bin" / "cli.js", DOCUMENT, "--output", folder / "tests" / "generated-api.ts")
    options: dict[str, Any] = {"rootDir": ".", "outDir": "out", "skipLibCheck": True, "paths": {"tocsin": ["./src/index.ts"]}}
    options |= {"rewriteRelativeImportExtensions": True, "types": ["node"], "typeRoots": [str(MODULES / "@types")]}
    settings = {"extends": str(SOURCES / "tsconfig.json"), "compilerOptions": options, "include": ["src", "tests", "cookbook"]}
    (folder / "tsconfig.json").write_text(json.dumps(settings))
    node(MODULES / "typescript" / "bin" / "tsc", "--project", folder)
    # The programs of the cookbook import the package by its name.
    (folder / "dist").symlink_to(folder / "out" / "src")
    return folder / "out"


def signed_requests() -> list[dict[str, Any]]:
    """Return requests that the service's signer signed, and one mutation of each kind of each of them; `good` is its verifier's verdict."""
    draw = random.Random(20)
    found = []
    for number in range(25):
        secrets = [f"whsec_{base64.b64encode(draw.randbytes(draw.choice([24, 32, 64]))).decode()}" for _ in range(3)]
        text = json.dumps({"n": number, "text": "".join(map(chr, draw.sample(range(32, 0x2FFF), 20)))}, ensure_ascii=number % 2 == 0)
        body, id, seconds = text.encode(), draw.choice(["order-17", "~a:b@c", "x" * 200]), draw.randrange(1, 4_000_000_000)
        headers = {
            "ce-id": id,
            "ce-source": "/tenants/demo/channels/default",
            "ce-tocsindue": "2026-11-21T10:21:55.250Z",
            "ce-tocsinfired": "2026-11-21T10:21:55.250Z",
            "ce-tocsinattempt": "1",
            "ce-tocsinlatems": "0",
            "webhook-id": id,
            "webhook-timestamp": str(seconds),
            # While a secret is rotated, the service signs with two.
            "webhook-signature": signing.sign(id, seconds, body, secrets[: 1 + number % 2]),
        }
        for name, changes in _mutations(draw, headers, body, secrets, seconds * 1000).items():
            case = {"headers": headers, "body": body, "secrets": secrets[: 1 + number % 3], "now": seconds * 1000, **changes}
            good = signing.verify(case["headers"], case["body"], case["secrets"], case["now"])
            text = base64.b64encode(case["body"]).decode()
            found.append({**case, "name": f"{name} {number}", "id": case["headers"].get("webhook-id", id), "good": good, "body": text})
    assert {each["good"] for each in found if each["name"].startswith(("as sent", "the other secret"))} == {True}
    assert sum(each["good"] for each in found) < len(found) / 2
    return found


def _mutations(draw: random.Random, headers: dict[str, str], body: bytes, secrets: list[str], now: int) -> dict[str, dict[str, Any]]:
    signature = headers["webhook-signature"]

    def sent(**changed: str) -> dict[str, Any]:
        return {"headers": {**headers, **{name.replace("_", "-"): value for name, value in changed.items()}}}

    at = draw.randrange(len(body))
    # The last digit before the padding: another one may stand for the same bytes.
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    last = alphabet[alphabet.index(signature[-2]) ^ 1]
    middle = draw.randrange(3, 40)
    other = "A" if signature[middle] != "A" else "B"
    return {
        "as sent": {},
        "names in capitals": {"headers": {name.upper(): value for name, value in headers.items()}},
        "the other secret first": {"secrets": [secrets[2], secrets[0]]},
        "a stranger's secret": {"secrets": [secrets[2]]},
        "another body": {"body": body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]},
        "a longer body": {"body": body + b" "},
        "another id": sent(webhook_id="other", ce_id="other"),
        "another second": sent(webhook_timestamp=str(now // 1000 + 1)),
        "the same second in other digits": sent(webhook_timestamp=f"0{now // 1000}"),
        "no second": sent(webhook_timestamp="soon"),
        "just in time": {"now": now + 300_000},
        "too old": {"now": now + 300_001},
        "too new": {"now": now - 300_001},
        "another digit": sent(webhook_signature=signature[:middle] + other + signature[middle + 1 :]),
        "the same bytes spelled otherwise": sent(webhook_signature=f"{signature[:-2]}{last}="),
        "without padding": sent(webhook_signature=signature.rstrip("=")),
        "another version": sent(webhook_signature=signature.replace("v1,", "v2,")),
        "no signature": sent(webhook_signature=""),
        "a good one behind strangers": sent(webhook_signature=" ".join(["v1,AAAA", "v1a,x", "junk", signature])),
        "a good one behind too many": sent(webhook_signature=" ".join(["v1,AAAA"] * 16 + [signature])),
    }
