"""The workers of the demo, each a process: python -m interlock.cli.demo_worker hold|work URL HURRY NAME."""

import asyncio
import sys

import msgspec

from interlock.client.app import App
from interlock.client.keys import make_secret
from interlock.kernel.commands import Claim, Finish, Heartbeat, LeaseRef, Outcome, Register, Start
from interlock.worker.demo_tasks import made
from interlock.worker.loop import Worker


def hold(app: App, name: str) -> None:
    """One job is claimed, begun and held until somebody says finish; then its outcome is told, come what may."""
    worker = app.send(Register(name=name, incarnation="1"))
    (grant,) = app.send(Claim(worker=worker, actor=name, key="1", nonce=make_secret()))
    held = (LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease),)
    app.send(Start(actor=name, held=held))
    app.send(Heartbeat(actor=name, held=held))
    say(str(grant.fence))  # from here on it holds no lock of the file, and may be frozen
    sys.stdin.readline()
    outcome = Outcome(held=held[0], result=msgspec.json.encode(f"{name}'s late answer").decode())
    (heard,) = app.send(Finish(actor=name, outcomes=(outcome,)))
    say(msgspec.json.encode(heard).decode())


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(part: str, url: str, hurry: int, name: str) -> None:
    with made(url, hurry) as app:
        if part == "hold":
            hold(app, name)
        else:
            asyncio.run(Worker(app, {"default": 20}, name=name).run())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
