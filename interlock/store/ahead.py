"""What a transaction will ask first, sent with its BEGIN: so many questions cost one round trip."""

from collections.abc import Iterator, Sequence

from interlock.kernel.rows import Body, Token, Unit, Worker
from interlock.store.claims import FREE, bodies_of
from interlock.store.connection import Connection, Question, listed
from interlock.store.finders import EXPIRED, LANES, OVERDUE, TOKENS_BACK
from interlock.store.lanes import Lanes
from interlock.store.tx import LOCKED

STAFF_MAX = 10_000  # workers that a connection remembers


def lanes_ahead(session: Connection, tenant: int) -> Question:
    """A tenant's new lanes, and its limits."""
    known = session.lanes.get(tenant) or Lanes(tenant)
    return Question(LANES, {"last": known.last, "end": known.end, "tenant": tenant})


def claim_ahead(
    session: Connection, tenant: int, worker: int, queues: Sequence[str], limit: int, least: int
) -> Iterator[Question]:
    """What a claim asks: its worker, what time must look at, and what waits, if one lane is all that it serves."""
    yield lanes_ahead(session, tenant)
    looked, able, busy = max(limit, least), *session.staff.get(worker, ("", False))
    if busy:
        yield Question(f"SELECT {listed(Worker)} FROM worker WHERE unit = :unit", {"unit": worker})
        yield Question(f"SELECT {listed(Unit)} FROM unit WHERE id = :id", {"id": worker})
    else:
        yield from worker_ahead(worker)
    yield Question(f"SELECT {listed(Token)} FROM token {TOKENS_BACK}", {"tenant": tenant, "limit": looked})
    overdue = looked + len(session.stuck)
    for due in (OVERDUE, EXPIRED):
        yield Question(f"SELECT {listed(Unit)} FROM unit {due}", {"tenant": tenant, "limit": overdue})
    known = session.lanes.get(tenant)
    served = known.served(tuple(queues), able).queues if known and worker in session.staff else {}
    if len(served) == 1:
        lane = next(iter(served))
        yield Question(f"SELECT {listed(Unit)} FROM unit {FREE}", {"lane": lane, "limit": limit})
        if not busy:  # it waits for little, so that another round trip would be felt
            yield bodies_of(lane, limit)


def worker_ahead(worker: int) -> Iterator[Question]:
    """A worker, its unit and its body, both rows locked."""
    yield Question(f"SELECT {listed(Worker)} FROM worker WHERE unit = :unit {{lock}}", {"unit": worker})
    yield Question(f"SELECT {listed(Unit)} FROM unit {LOCKED}", {"ids": [worker]})
    yield Question(f"SELECT {listed(Body)} FROM body WHERE unit {{ids}}", {"ids": [worker]})


def remember_worker(session: Connection, worker: Worker) -> None:
    """What the next claim of this worker will want to know."""
    if len(session.staff) >= STAFF_MAX:
        session.staff.clear()
    session.staff[worker.unit] = worker.capabilities, worker.holding > 0
