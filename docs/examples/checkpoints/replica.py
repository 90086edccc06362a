import asyncio
import logging
import os
import sys

from tocsin.checkpoints import CheckpointParticipant, Health

logging.basicConfig(format="%(message)s")
logging.getLogger("tocsin").setLevel(logging.INFO)


async def main(node: str) -> None:
    app = (os.environ["TOCSIN_URL"], os.environ["TOCSIN_KEY"])
    async with CheckpointParticipant("search", node, *app, health=lambda: Health(applied=120), folder="state") as replica:
        async with replica.turn() as turn:
            print("taking", turn.epoch, flush=True)  # write the checkpoint here
            turn.result(sequence=120, location=f"/backup/{node}-120")
        print("published", turn.epoch, turn.latest)


asyncio.run(main(sys.argv[1]))
