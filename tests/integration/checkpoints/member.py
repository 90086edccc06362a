"""One replica of a fleet, as a process: `member.py FLEET NODE FOLDER`, the app in TOCSIN_URL and TOCSIN_KEY.

FOLDER/FLEET.primary holds `NODE TERM` of the primary. Each body writes to FOLDER/FLEET.log when it begins and when it ends, and lasts while
FOLDER/FLEET.hold is there; who acts as primary writes that, too. Times are of the machine's monotonic clock, the same in all processes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from shared.checkpoints import CheckpointParticipant, Health, TurnLost


class Member:
    """The replica."""

    def __init__(self, fleet: str, node: str, folder: Path) -> None:
        self.fleet, self.node, self.folder = fleet, node, folder
        self.health = Health()
        self._log = os.open(folder / f"{fleet}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, *words: object) -> None:
        """One line, as a whole or not at all."""
        os.write(self._log, (" ".join(map(str, (time.monotonic(), self.node, os.getpid(), *words))) + "\n").encode())

    async def follow(self, participant: CheckpointParticipant) -> None:
        """Take over the role that the file says."""
        while True:
            self.look()
            if self.health.role == "primary":
                await participant.recheck()
                self.write("primary")
                while self.health.role == "primary":
                    await asyncio.sleep(0.02)
                    primary, _ = self.named()
                    if primary != self.node:
                        # No longer acts as one, and only then is a secondary.
                        self.write("secondary")
                        self.look()
            await asyncio.sleep(0.02)

    def named(self) -> tuple[str, int]:
        primary, term = (self.folder / f"{self.fleet}.primary").read_text().split()
        return primary, int(term)

    def look(self) -> None:
        primary, term = self.named()
        self.health = Health("primary" if primary == self.node else "secondary", term, applied=self.applied())

    def applied(self) -> int:
        """Rises alike on all members."""
        return int(time.monotonic() * 10)

    async def take(self, participant: CheckpointParticipant) -> None:
        """One turn."""
        try:
            async with participant.turn() as turn:
                self.write("begin", turn.epoch)
                try:
                    sequence = self.applied()
                    await asyncio.sleep(0.1)
                    while (self.folder / f"{self.fleet}.hold").exists():  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                finally:
                    self.write("end", turn.epoch)
                turn.result(sequence, f"{self.node}/{turn.epoch}")
        except TurnLost as lost:
            self.write("lost", lost.epoch, lost.reason)
        else:
            self.write("published", turn.epoch, sequence)


async def main(fleet: str, node: str, folder: Path) -> None:
    member = Member(fleet, node, folder)
    member.look()
    app = (os.environ["TOCSIN_URL"], os.environ["TOCSIN_KEY"])
    async with CheckpointParticipant(fleet, node, *app, health=lambda: member.health, folder=folder, timeout=5) as participant:
        following = asyncio.create_task(member.follow(participant))
        while not following.done():
            await member.take(participant)
        await following


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
