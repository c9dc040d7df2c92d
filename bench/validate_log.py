"""How fast `interlock validate-log` checks a legal log, against a bare loop that only decodes the same lines."""

import io
import os
import statistics
import time
from collections.abc import Callable

import msgspec

from interlock.audit.log.checker import Checker
from interlock.audit.log.state import LogLine
from interlock.lifecycles import shipped

TASKS = 2_000 if os.environ.get("QUICK") else 40_000
ROUNDS = 5
WORKERS, BATCH = 8, 5
LIFECYCLES = [lifecycle for lifecycle in shipped().values() if lifecycle.document == "003"]
TASK_PATH = [
    ("pending", "queued", "scheduler_assigned"),
    ("queued", "running", "worker_started"),
    ("running", "validating", "execution_completed"),
    ("validating", "completed", "validation_passed"),
]


def event(at_ms: int, kind: str, entity_id: str, move: tuple[str, str, str], metadata: dict[str, object]) -> bytes:
    """One line of the log."""
    minute, second = divmod(at_ms // 1000, 60)
    clock = f"{minute // 1440 + 1:02}T{minute // 60 % 24:02}:{minute % 60:02}:{second:02}.{at_ms % 1000:03}Z"
    line = {
        "timestamp": f"2024-01-{clock}",
        "event_type": f"{kind}_state_transition",
        "severity": "info",
        "entity_id": entity_id,
        "from_state": move[0],
        "to_state": move[1],
        "trigger": move[2],
        "metadata": metadata,
    }
    return msgspec.json.encode(line) + b"\n"


def legal_log(tasks: int) -> bytes:
    """A log of whole task lives and of the workers that ran them, a few milliseconds apart."""
    log, now = bytearray(), 0
    for number in range(tasks):
        task, worker, stream = f"task-{number:08}", f"worker-{number % WORKERS}", f"ws-{number // BATCH}"
        about: dict[str, object] = {"workstream_id": stream, "retry_count": 0}
        if number % WORKERS == 0 and number < WORKERS:
            for each in range(WORKERS):
                ready = ("initializing", "idle", "registration_complete")
                log += event(now, "worker", f"worker-{each}", ready, {"max_concurrent_tasks": 1})
        for move in TASK_PATH:
            now += 3
            extra: dict[str, object] = {"worker_id": worker} if "running" in move[:2] else {}
            log += event(now, "task", task, move, about | extra | {"duration_seconds": 4.5})
            if move[1] == "running":
                log += event(now, "worker", worker, ("idle", "busy", "task_assigned"), {"task_count": 1})
            if move[0] == "running":
                log += event(now, "worker", worker, ("busy", "idle", "task_completed"), {"task_count": 0})
    return bytes(log)


def check_all(log: bytes) -> None:
    assert not list(Checker(LIFECYCLES).findings(io.BytesIO(log)))


def decode_all(log: bytes) -> None:
    decode = msgspec.json.Decoder(LogLine).decode
    for raw in io.BytesIO(log):
        decode(raw)


def seconds(work: Callable[[bytes], None], log: bytes) -> float:
    start = time.perf_counter()
    work(log)
    return time.perf_counter() - start


def main() -> None:
    log = legal_log(TASKS)
    lines = log.count(b"\n")
    works: dict[str, Callable[[bytes], None]] = {"checker": check_all, "floor": decode_all}
    rates: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            rates[name].append(lines / seconds(work, log))
    print(f"validate-log: {lines} lines, {ROUNDS} rounds in turn; floor: the same lines decoded and dropped")
    for name, each in rates.items():
        middle = statistics.median(each)
        print(f"  {name:8} {middle:>10.0f} lines/s   ({min(each):.0f} to {max(each):.0f})")
    ratios = [checker / floor for checker, floor in zip(rates["checker"], rates["floor"], strict=True)]
    print(f"  ratio    {statistics.median(ratios):>10.2f}           ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
