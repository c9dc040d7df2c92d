"""A claim finds that its worker's leases are over, takes a unit anew, and a parent's end takes it away again.

The worker spoke, and what it held last was revoked by the engine: it is idle, and nobody calls it silent (seed 103213).
"""

import pytest

from interlock.kernel.commands import Claim, Decide, Register, Submit, Work
from interlock.testing.simulation.record import RecordedStep
from interlock.testing.simulation.replay import replay

BEFORE = [
    RecordedStep(
        at=1893456000244000,
        server="server 0",
        commands=(Submit(tenant=2, actor="stranger", work=(Work(task="play", input='{"acts": []}'),)),),
    ),
    RecordedStep(
        at=1893456000386000,
        server="server 0",
        commands=(
            Register(name="player 0.2", incarnation="1", capacity=9),
            Submit(
                actor="gambler",
                idempotency_key="s22",
                work=(
                    Work(
                        task="stream",
                        lifecycle="workstream",
                        queue="raw",
                        ref="w",
                        timeout_us=4000000,
                        queue_timeout_us=20000000,
                    ),
                    Work(task="t", lifecycle="task", queue="raw", parent="w", ref="t0", attempts=1),
                    Work(task="t", lifecycle="task", queue="raw", parent="w", ref="t1", expires_us=20000000),
                    Work(
                        task="t",
                        lifecycle="task",
                        queue="raw",
                        parent="w",
                        needs=("t1",),
                        ref="t2",
                        attempts=1,
                        queue_timeout_us=20000000,
                    ),
                ),
            ),
        ),
        faults=("", "", "", "", "away", "", "", "", "", "", "", "", "", ""),
    ),
    RecordedStep(at=1893456000493000, server="server 0", commands=(Decide(actor="gambler", unit=8, trigger="plan"),)),
]
TWO_CLAIMED = RecordedStep(
    at=1893456001825000,
    server="server 0",
    commands=(
        Claim(actor="gambler's hand", worker=7, nonce="00000gambler.c19", key="gambler.c19", limit=2, queues=("raw",)),
    ),
)
ONE_CLAIMED = RecordedStep(
    at=1893456000517000,
    server="server 0",
    commands=(Claim(actor="gambler's hand", worker=7, nonce="00000gambler.c10", key="gambler.c10", queues=("raw",)),),
)
AFTER = RecordedStep(
    at=1893456006000000,
    server="server 0",
    commands=(Claim(actor="gambler's hand", worker=7, nonce="00000gambler.c12", key="gambler.c12", queues=("raw",)),),
)


@pytest.mark.parametrize("claimed", [TWO_CLAIMED, ONE_CLAIMED], ids=["the same unit", "another unit"])
def test_a_worker_that_spoke_is_not_called_silent(claimed: RecordedStep) -> None:
    assert replay([*BEFORE, claimed, AFTER]) == []
