"""Prove what is stale, check certificates, or prove some anew: `python -m tests.proofs --help` lists the options."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.paths import ROOT

from .catalogue import CatalogueError, Proof, find_proofs, named
from .certificate import stale_because
from .proving import MOST_SECONDS, Outcome, choose, compare, orphans, prove_all, write
from .trees import TreeHashes

FAILED, INTERRUPTED = 1, 130
EXAMPLES = """\
examples:
  make prove                            prove what is stale, in as many processes as there are processors
  make prove ONLY=model/turns           the stale ones of a folder, a file or one part
  make prove ALL=1                      prove everything anew
  python -m tests.proofs --check        one line for each stale certificate; proves nothing
  python -m tests.proofs --again 2 --commit "$(git rev-parse HEAD)"
                                        prove two current ones anew, and compare; writes nothing

exit codes:
  0    all is proved, and every certificate that was asked for is current
  1    a proof failed, a certificate is stale (--check), or a proof found other numbers than its certificate says (--again)
  2    the arguments are wrong
  130  interrupted: what was proved until then has its certificate
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code. The help text describes it."""
    asked = _parser().parse_args(arguments)
    console = Console(soft_wrap=True, highlight=False)
    try:
        every = find_proofs()
        chosen = named(every, asked.only) if asked.only else every
    except CatalogueError as wrong:
        print(f"tests.proofs: {wrong}", file=sys.stderr)
        return 2
    trees = TreeHashes()
    stale = {proof: reason for proof in chosen if (reason := stale_because(proof, trees))}
    trees.save()
    if asked.list:
        for proof in chosen:
            print(f"{proof.name}: {stale.get(proof, 'current')}")
        return 0
    if asked.check:
        return _check(stale, [] if asked.only else list(orphans(every)))
    current = [proof for proof in chosen if proof not in stale]
    if asked.again and len(current) < asked.again:
        print(f"tests.proofs: {len(current)} certificates are current, and {asked.again} were to be compared", file=sys.stderr)
        return FAILED
    if asked.again:
        return _prove(console, choose(current, asked.again, asked.commit), asked.jobs, again=True)
    if not asked.only:
        for file in orphans(every):
            print(f"{file.relative_to(ROOT)}: removed, because its proof is gone")
            file.unlink()
    return _prove(console, chosen if asked.all else list(stale), asked.jobs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proofs",
        description="Run the proofs whose certificates in tests/proved/ are stale, and write new ones.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="NAME", help="this proof, or those of this file or folder: model/turns")
    parser.add_argument("--all", action="store_true", help="prove what is current too")
    parser.add_argument("--jobs", type=_positive, default=os.cpu_count() or 1, metavar="N", help="processes (default: one a processor)")
    does = parser.add_mutually_exclusive_group()
    does.add_argument("--check", action="store_true", help="print a line for each stale certificate, and prove nothing")
    does.add_argument("--again", type=_positive, metavar="N", help="prove N current ones anew, compare, and write nothing")
    does.add_argument("--list", action="store_true", help="print the names of all proofs, and what makes them stale")
    parser.add_argument("--commit", default="", metavar="SHA", help="with --again: the text that chooses which ones")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _check(stale: dict[Proof, str], left: Sequence[Path]) -> int:
    for proof, reason in stale.items():
        print(f"stale proof {proof.name}: {reason}")
    for file in left:
        print(f"stale certificate {file.relative_to(ROOT)}: there is no such proof")
    if stale or left:
        print("`make prove` proves what is stale; commit what it writes into tests/proved/", file=sys.stderr)
    return FAILED if stale or left else 0


def _prove(console: Console, proofs: Sequence[Proof], jobs: int, *, again: bool = False) -> int:
    failed: list[str] = []
    used = 0.0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("proving", total=len(proofs))

        def ended(outcome: Outcome) -> None:
            nonlocal used
            used += outcome.seconds
            proof, problems = outcome.proof, compare(outcome) if again else []
            if outcome.content is None:
                console.print(escape(outcome.output.rstrip()))
                problems = ["fails; its output is above"]
            elif not again:
                write(outcome.content, proof)
            text = "; ".join(problems) if problems else f"{'as certified' if again else 'proved'}, {outcome.seconds:.0f} s of one processor"
            if outcome.seconds > MOST_SECONDS:
                text += f": more than {MOST_SECONDS:.0f} s; raise PARTS in {proof.path.relative_to(ROOT)}"
            console.print(escape(f"{proof.name}: {text}"), style="red" if problems else "")
            failed.extend([proof.name] if problems else [])
            bar.advance(task)

        # Ended by another process, the proofs' processes end as well.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            prove_all(proofs, jobs, ended)
        except KeyboardInterrupt:
            return INTERRUPTED
    said = f"{len(failed)} failed: {', '.join(failed)}" if failed else "all hold"
    print(f"{len(proofs)} proved, {said}; {used:.0f} s of one processor" if proofs else "nothing to prove: every certificate is current")
    return FAILED if failed else 0


if __name__ == "__main__":
    sys.exit(main())
