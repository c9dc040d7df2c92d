"""What it costs to move 500 units that have a long history, in one transaction: it must be what young ones cost."""

import os
import time
from statistics import median

from bench.compare import SERVER
from bench.machine import measure_used_s
from interlock.kernel.commands import Claim, LeaseRef, Register, Release, Submit, Work
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store.url import connect
from tests.postgres.server import postgres
from tests.store.databases import fresh_postgres

UNITS, VERSIONS, MEASURED = 500, 500, 10
NONCE = "history" * 8


class Stage:
    """An engine on PostgreSQL, whose units are claimed and given back again and again."""

    def __init__(self, url: str) -> None:
        self.connection = connect(url)
        self.engine = make_engine(self.connection, shipped())
        self.worker = self.engine.send(Register(name="history", incarnation="1", capacity=UNITS))
        self.engine.send(Submit(work=tuple(Work(task="noop") for _ in range(UNITS))))
        self.backend = self.connection.rows("SELECT pg_backend_pid()")[0][0]
        self.claims = 0

    def claim_and_release(self) -> tuple[float, float]:
        """All units are claimed in one transaction, and given back in another; answers seconds and server's seconds."""
        began, used = time.monotonic(), measure_used_s([self.backend])
        self.claims += 1
        claim = Claim(worker=self.worker, key=str(self.claims), nonce=NONCE, limit=UNITS, queues=("default",))
        grants = self.engine.send(claim)
        assert len(grants) == UNITS
        held = tuple(LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease) for grant in grants)
        self.engine.send(Release(held=held))
        return time.monotonic() - began, measure_used_s([self.backend]) - used


def main() -> None:
    with postgres(SERVER) as server, fresh_postgres(server, f"history{os.getpid()}") as url:
        stage = Stage(url)
        print("| versions of each | ms to claim and give back 500 | PostgreSQL, µs per unit |\n| ---: | ---: | ---: |")
        done = 0
        for wanted in (0, VERSIONS):
            while 2 * done < wanted:
                stage.claim_and_release()
                done += 1
            rounds = [stage.claim_and_release() for _ in range(MEASURED)]
            seconds, used = (median(column) for column in zip(*rounds, strict=True))
            done += MEASURED
            print(f"| {2 * (done - MEASURED)} | {seconds * 1e3:.0f} | {used / UNITS * 1e6:.1f} |")
        stage.engine.close()


if __name__ == "__main__":
    main()
