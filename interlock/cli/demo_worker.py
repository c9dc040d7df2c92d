"""Worker processes of the demo: python -m interlock.cli.demo_worker hold|work URL HURRY NAME."""

import asyncio
import sys

import msgspec

from interlock.client.app import App
from interlock.client.keys import make_secret
from interlock.kernel.commands import Claim, Finish, Heartbeat, LeaseRef, Outcome, Register, Start
from interlock.worker.demo_tasks import make_app
from interlock.worker.loop import Worker


def hold_job(app: App, name: str) -> None:
    """Claim and start a job, hold it until a line comes from standard input, and then send its result."""
    worker = app.send(Register(name=name, incarnation="1"))
    (grant,) = app.send(Claim(worker=worker, actor=name, key="1", nonce=make_secret()))
    held = (LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease),)
    app.send(Start(actor=name, held=held))
    app.send(Heartbeat(actor=name, held=held))
    write_line(str(grant.fence))  # from here on it holds no lock of the file, and may be frozen
    sys.stdin.readline()
    outcome = Outcome(held=held[0], result=msgspec.json.encode(f"{name}'s late answer").decode())
    (reply,) = app.send(Finish(actor=name, outcomes=(outcome,)))
    write_line(msgspec.json.encode(reply).decode())


def write_line(line: str) -> None:
    """Write a line for the demo, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(part: str, url: str, hurry: int, name: str) -> None:
    """Claim one job and hold it, or run jobs like any worker."""
    with make_app(url, hurry) as app:
        if part == "hold":
            hold_job(app, name)
        else:
            asyncio.run(Worker(app, {"default": 20}, name=name).run())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
