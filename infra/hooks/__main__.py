"""The hooks of azure.yaml, and the commands with which a second app is deployed. They need any Python from 3.9 on, and nothing else.

python3 infra/hooks package        make build/app, which azd deploys, and build/app.zip, the same as one file
python3 infra/hooks before-deploy  at the first deployment: wait until the app's role on its deployment container is effective
python3 infra/hooks after-deploy   have the keys read, wait until the app is ready, and print its URL and a first call
python3 infra/hooks publish URL    deploy build/app.zip to the app at URL
"""

from __future__ import annotations

import sys
from pathlib import Path

import package
import publish
import ready

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    """Run one command; return the exit code."""
    commands = {
        "package": lambda: package.build(ROOT),
        "before-deploy": lambda: publish.before_deploy(ROOT),
        "after-deploy": ready.after_deploy,
    }
    if len(arguments) == 1 and arguments[0] in commands:
        return commands[arguments[0]]()
    if len(arguments) == 2 and arguments[0] == "publish":
        return publish.publish(ROOT, arguments[1])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
