"""What else the machine does while something is measured, and how much memory a process has."""

import os
import platform
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def busy_s() -> float:
    """Seconds that all cores have worked since the machine started."""
    user, nice, system, _, _, irq, soft, steal, *_ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + soft + steal) / TICKS


def stats() -> dict[int, list[str]]:
    """The state of every process, after its name."""
    stats_by_pid = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stats_by_pid[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
    return stats_by_pid


def tree(root: int, known: dict[int, list[str]]) -> list[int]:
    """A process and all that come from it."""
    below: dict[int, list[int]] = {}
    for pid, fields in known.items():
        below.setdefault(int(fields[1]), []).append(pid)
    pids, frontier = [], [root]
    while frontier:
        pid = frontier.pop()
        pids.append(pid)
        frontier += below.get(pid, [])
    return pids


def measure_used_s(roots: list[int]) -> float:
    """Seconds of processor time that these trees have used, those that ended included."""
    known = stats()
    mine = {pid for root in roots for pid in tree(root, known) if pid in known}
    return sum(sum(map(int, known[pid][11:15])) for pid in mine) / TICKS


class Others:
    """How many cores were busy with other things between two moments."""

    def __init__(self, roots: list[int]) -> None:
        self.roots = roots
        self.start = time.monotonic(), busy_s(), measure_used_s(roots)

    def cores(self) -> float:
        at, busy, used = self.start
        passed = time.monotonic() - at
        return max(0.0, ((busy_s() - busy) - (measure_used_s(self.roots) - used)) / passed) if passed else 0.0


def memory_mb(root: int) -> float:
    """What a process and its children keep in memory; what they share is counted once."""
    total = 0
    for pid in tree(root, stats()):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def describe_machine() -> dict[str, str]:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return {
        "processor": cpu, "cores": str(os.cpu_count()), "system": platform.system(),
        "python": platform.python_version(),
    }  # fmt: skip
