"""Workers: each is a unit with a lifecycle, and a row that says what it can do."""

import msgspec

from interlock.core import validation
from interlock.core.advance import Stamp, advance, change, make_stamp, make_unit
from interlock.core.fast_path import PlainPaths, make_act, make_worker_move
from interlock.core.tx_state import ClaimMark, WorkerCalls, WorkerChanges
from interlock.kernel.commands import Drain, Register, Standing
from interlock.kernel.errors import Contended, Drained, Gone
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Body, Unit, WorkerRow
from interlock.store.cache import WorkerHint
from interlock.store.commit_proof import choose_proof
from interlock.store.connection import CALL
from interlock.store.flush import WORKER_WRITTEN
from interlock.store.queries.for_verbs import lock_incarnations
from interlock.store.queries.plain import WORKER_LOCKED, WORKER_UNLOCKED
from interlock.store.unit_of_work import UnitOfWork

LIFECYCLE = "worker"
NOBODY = Stamp("")
CAPACITY_MAX = 1_000_000


def register(tx: UnitOfWork, command: Register) -> int:
    """A worker is idle and may claim. What an older incarnation of its name holds is left to its leases' end."""
    validation.check_name("name", command.name)
    validation.check_name("incarnation", command.incarnation)
    validation.check_capabilities(command.capabilities)
    validation.check_range("capacity", command.capacity, 1, CAPACITY_MAX)
    validation.check_range("concurrency", command.concurrency, 0, CAPACITY_MAX)
    for task in command.tasks or ():
        validation.check_name("a task", task)
    stamp = make_stamp(command)
    capabilities = ",".join(sorted(command.capabilities))
    tasks = None if command.tasks is None else msgspec.json.encode(sorted(command.tasks)).decode()
    for older in [lock_worker(tx, row.unit) for row in lock_incarnations(tx, command.tenant, command.name)]:
        if older.incarnation == command.incarnation:
            if (older.tasks, older.capabilities) != (tasks, capabilities):  # a program may get more while it runs
                older.tasks, older.capabilities = tasks, capabilities
                tx.change(older)
            return older.unit
        older.draining = 1
        tx.change(older)
        drain_if_empty(tx, older, Stamp(command.actor, "a new incarnation has registered"))
    unit = Unit(id=tx.ids.take(), tenant=command.tenant, lane=0, lifecycle=LIFECYCLE)
    body = Body(unit=unit.id, tenant=unit.tenant, task=LIFECYCLE, created_at=tx.now)
    make_unit(tx, unit, body, stamp, trigger="register")
    tx.add(
        WorkerRow(
            unit=unit.id, tenant=unit.tenant, name=command.name, incarnation=command.incarnation,
            capabilities=capabilities, capacity=command.capacity, holding=0, draining=0,
            seen_at=tx.now, concurrency=command.concurrency, claim_key=None,
            tasks=tasks,
        )
    )  # fmt: skip
    return unit.id


def drain(tx: UnitOfWork, command: Drain) -> Standing:
    """A worker gets no new work, and has shut down as soon as it holds nothing."""
    worker = lock_worker(tx, command.worker)
    worker.draining = 1
    tx.change(worker)
    moved = drain_if_empty(tx, worker, make_stamp(command))
    unit = tx.unit(worker.unit)
    return Standing(unit=unit.id, state=unit.state, version=unit.version, applied=moved)


def mark_alive(tx: UnitOfWork, holder: int) -> WorkerRow:
    """The worker is alive; one that did not answer for a while is back, and empty. One that shut down is refused."""
    return bring_back(tx, lock_worker(tx, holder))


def bring_back(tx: UnitOfWork, worker: WorkerRow) -> WorkerRow:
    """Returns a worker that may claim; one that was silent, and is heard again, comes back."""
    unit = tx.unit(worker.unit)
    if tx.lifecycle(unit).settled(unit.state):
        if worker.draining:
            raise Drained(f"worker {worker.name} was drained and has shut down; start another one to go on")
        raise Gone(f"worker {worker.name} has shut down; it may register again as a new incarnation")
    worker.seen_at = tx.now
    tx.change(worker)
    if tx.lifecycle(unit).allows(unit.state, "recover"):
        advance(tx, unit, "recover", Stamp(f"worker {worker.name}"))
    within_us = tx.lifecycle(unit).states[unit.state].within_us
    change(tx, unit, deadline_at=tx.now + within_us if within_us else None)
    return worker


def add_queues(worker: WorkerRow, queues: tuple[str, ...]) -> None:
    """The worker is known to claim from these queues, beside those that it claimed from before."""
    known = msgspec.json.decode(worker.queues, type=set[str])
    if not known.issuperset(queues):
        worker.queues = msgspec.json.encode(sorted(known.union(queues))).decode()


def read_worker(tx: UnitOfWork, holder: int, key: str) -> WorkerRow | None:
    """A worker as its claim finds it, if the claim may go by that and be written into its row at last.

    So whoever gives something back need not wait for a whole claim: with many writers, one that held something at its
    last claim is read without a lock. One that is silent, full or drained is left to the verb, and so is one that says
    this claim again.
    """
    changes, name = tx.state(WorkerChanges), (tx.tenant, holder)
    if holder in tx.rows.workers or holder in tx.rows.units or name in changes.claims or name in changes.given_back:
        return None
    unlocked = tx.connection.many_writers and tx.cache.workers.get(holder, WorkerHint()).busy
    places = tx.run((WORKER_UNLOCKED if unlocked else WORKER_LOCKED).bind(unit=holder))
    if not places or places[0].row.tenant != tx.tenant:
        return None
    place, worker = places[0], places[0].row
    known, kind = tx.cache.state(PlainPaths).workers, (place.state, "")
    if kind not in known:
        known[kind] = make_worker_move(tx, *kind)
    if known[kind] is None:  # it has shut down, or does not answer
        return None
    silent = place.deadline_at is None or place.deadline_at <= tx.now
    if silent or worker.holding >= worker.capacity or worker.draining or worker.claim_key == key:
        return None
    if not unlocked:
        changes.locked[name] = place
    return worker


def mark_claim(tx: UnitOfWork, worker: WorkerRow, mark: ClaimMark) -> None:
    """The worker holds more; with the first one it is busy.

    Raises:
        Contended: it has claimed elsewhere meanwhile.
    """
    if worker.claim_key != mark.before or worker.draining or worker.holding + mark.units > worker.capacity:
        raise Contended(f"worker {worker.name} is no longer what it was when this claim began")
    tx.change(worker)
    worker.claim_key, worker.claim_nonce_hash = mark.key, mark.nonce_hash
    if mark.units and worker.holding == 0:
        advance(tx, tx.unit(worker.unit), "assign", mark.stamp)
    worker.holding += mark.units


def notify_holder(tx: UnitOfWork, unit: Unit) -> None:
    """Wakes whoever holds the unit: it will ask at once how it stands with it, and not wait for its next beat."""
    if unit.holder is not None:
        worker = tx.worker(unit.holder)
        worker.summons += 1
        tx.change(worker)
        tx.state(WorkerCalls).queues.add((worker.tenant, f"{CALL}{worker.name}"))


def give_back(tx: UnitOfWork, unit: Unit, holder: int, stamp: Stamp) -> None:
    """The worker will hold this unit no more; it is told last, so that its next claim hardly waits for this."""
    given_back = tx.state(WorkerChanges).given_back
    count, finished, _ = given_back.get((unit.tenant, holder), (0, 0, stamp))
    by_word = unit.lease is not None and tx.lease_lifecycle.category(unit.lease) is Category.SUCCESS
    given_back[unit.tenant, holder] = count + 1, finished + by_word, stamp


def free_workers(tx: UnitOfWork) -> None:
    """Workers hold what they have claimed, and no longer what they gave back."""
    changes = tx.state(WorkerChanges)
    for tenant, holder in sorted({*changes.given_back, *changes.claims}):
        tx.tenant = tenant
        if not settle_worker(tx, changes, holder):
            lock_worker(tx, holder)


def settle_worker(tx: UnitOfWork, changes: WorkerChanges, holder: int) -> bool:
    """Does for a worker that is well what `lock_worker` does, with one question and at most three statements.

    Returns whether it has; if not, nothing has changed. A worker that is drained, silent or ahead of the clock, that
    this transaction knows as a unit, or that becomes busy and idle in it, is left to `lock_worker`.
    """
    name = tx.tenant, holder
    if not tx.fast_path or holder in changes.silent or holder in tx.rows.workers or holder in tx.rows.units:
        return False
    place = changes.locked.get(name) or next(iter(tx.run(WORKER_LOCKED.bind(unit=holder))), None)
    if place is None or place.row.tenant != tx.tenant or place.row.draining or place.changed_at > tx.now:
        return False
    worker, mark = place.row, changes.claims.get(name)
    count, finished, stamp = changes.given_back.get(name, (0, 0, NOBODY))
    claimed = mark.units if mark else 0
    holds, is_new = worker.holding + claimed - count, mark is None or worker.claim_key == mark.before
    begins, ends = claimed > 0 and worker.holding == 0, count > 0 and holds == 0
    known, kind = tx.cache.state(PlainPaths).workers, (place.state, "assign" if begins else "free" if ends else "")
    if kind not in known:
        known[kind] = make_worker_move(tx, *kind)
    move = known[kind]
    if move is None or (begins and ends) or not is_new or worker.holding + claimed > worker.capacity:
        return False
    worker.holding, worker.completions = holds, worker.completions + finished
    if mark:
        stamp = mark.stamp if begins else stamp
        worker.seen_at, worker.claim_key, worker.claim_nonce_hash = tx.now, mark.key, mark.nonce_hash
        queues = msgspec.json.decode(worker.queues, type=set[str])
        if not queues.issuperset(mark.queues):
            worker.queues = msgspec.json.encode(sorted(queues.union(mark.queues))).decode()
    acts = [make_act(tx, move.path, stamp, place, [holder], [place.act], fence=place.fence)] if move.path else []
    clock = None if move.within_us is None else tx.now + move.within_us
    with tx.connection.pipeline():
        if acts:
            tx.connection.write_acts(acts, ())
        if (mark or acts) and clock != place.deadline_at:
            unit = Unit(id=holder, tenant=tx.tenant, lane=0, lifecycle=LIFECYCLE, wake_at=clock, deadline_at=clock)
            tx.connection.update([unit], ("wake_at", "deadline_at"), "id")
        tx.connection.update([worker], WORKER_WRITTEN, "unit")
    changes.claims.pop(name, None)
    changes.given_back.pop(name, None)
    changes.locked.pop(name, None)
    tx.prefetched.clear()
    tx.changes.count += 1
    tx.changes.written.add(holder)
    tx.changes.proof = choose_proof(tx.changes.proof, acts, [(worker, ("unit", *WORKER_WRITTEN))])
    return True


def lock_worker(tx: UnitOfWork, holder: int) -> WorkerRow:
    """A worker, locked, as this transaction leaves it; with the last unit given back it is idle, or gone if drained."""
    worker, changes = tx.worker(holder), tx.state(WorkerChanges)
    mark = changes.claims.pop((worker.tenant, holder), None)
    if mark:
        add_queues(bring_back(tx, worker), mark.queues)
        mark_claim(tx, worker, mark)
    if (worker.tenant, holder) not in changes.given_back:
        return worker
    count, finished, stamp = changes.given_back.pop((worker.tenant, holder))
    silent = holder in changes.silent
    changes.silent.discard(holder)
    worker.holding -= count
    worker.completions += finished
    tx.change(worker)
    if worker.holding == 0 and not drain_if_empty(tx, worker, stamp):
        unit = tx.unit(worker.unit)
        if silent:
            mark_silent(tx, worker, unit)
        elif tx.lifecycle(unit).allows(unit.state, "free"):
            advance(tx, unit, "free", stamp)
    return worker


def mark_silent(tx: UnitOfWork, worker: WorkerRow, unit: Unit) -> None:
    """A worker has lost its last lease by silence: it does not answer, unless it speaks in this transaction."""
    if tx.lifecycle(unit).allows(unit.state, "miss"):
        advance(tx, unit, "miss", Stamp("clock", "its lease is over, and it was not heard"))
        if worker.seen_at == tx.now:
            bring_back(tx, worker)


def drain_if_empty(tx: UnitOfWork, worker: WorkerRow, stamp: Stamp) -> bool:
    """Shuts a draining worker down if it holds nothing; returns whether it did."""
    unit = tx.unit(worker.unit)
    if not worker.draining or worker.holding or not tx.lifecycle(unit).allows(unit.state, "drain"):
        return False
    advance(tx, unit, "drain", stamp)
    return True
