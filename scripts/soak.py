"""Plays seeds on all cores for a while, and tells what they did: figures, the table of moves and faults, what broke."""

import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from interlock.lifecycles import shipped
from interlock.testing import simulate
from interlock.testing.simulation.faults import KINDS
from interlock.testing.simulation.runner import Report
from interlock.testing.simulation.scenarios import Move, list_moves
from interlock.testing.simulation.shrink import shrink_steps, write_test

STRICT = 600  # seconds from which on the table is judged too
LEAST = 10  # times that every listed move is taken by then
BATCH = 8  # seeds that one process plays before it tells
# Cells that no seed can take, each with its reason: by kind of fault, then by move.
UNREACHABLE: dict[tuple[Move, str], str] = {}


class Sums:
    """What all seeds did together."""

    def __init__(self) -> None:
        self.seeds = self.commands = self.transitions = self.late = 0
        self.seconds = self.cpu = 0.0
        self.struck: Counter[str] = Counter()
        self.moves: Counter[Move] = Counter()
        self.cells: Counter[tuple[Move, str]] = Counter()
        self.broken: list[Report] = []

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.commands += report.commands
        self.transitions += report.transitions
        self.late += report.late
        self.seconds += report.seconds
        self.struck += report.struck
        self.moves += report.moves
        self.cells += report.cells
        if report.violations:
            self.broken.append(report)


def batch(first: int, last: int) -> tuple[list[Report], float]:
    """The reports of these seeds, and the processor time that they took."""
    began = time.process_time()
    reports = [simulate(seed) for seed in range(first, last)]
    return reports, time.process_time() - began


def soak(seconds: float, first: int) -> Sums:
    """Seeds from the first on, for so long, on every core."""
    sums, cores = Sums(), os.cpu_count() or 1
    end = time.monotonic() + seconds
    with ProcessPoolExecutor(cores) as pool:
        running = []
        while time.monotonic() < end or running:
            while time.monotonic() < end and len(running) < cores + 1:
                running.append(pool.submit(batch, first, first + BATCH))
                first += BATCH
            reports, cpu = running.pop(0).result()
            sums.cpu += cpu
            for report in reports:
                sums.add(report)
    return sums


def figures(sums: Sums, seconds: float) -> list[str]:
    minutes, cpu_minutes = seconds / 60, sums.cpu / 60
    counts = {"seeds": sums.seeds, "commands": sums.commands, "transitions": sums.transitions}
    lines = [f"{'':12} {'in all':>12} {'a minute':>12} {'a CPU minute':>14}"]
    lines += [f"{name:12} {n:12,} {n / minutes:12,.0f} {n / cpu_minutes:14,.0f}" for name, n in counts.items()]
    lines.append(f"{seconds:.0f} s, {sums.cpu:.0f} s of processor time, {os.cpu_count()} cores")
    lines.append(f"{sums.seconds:,.0f} virtual seconds; {sums.late} late effects refused by the sink")
    return lines


def table(sums: Sums) -> list[str]:
    """How often each listed move was taken, and while which kinds of faults could strike."""
    kinds = list(KINDS)
    lines = ["moves × faults: " + ", ".join(f"{place} {kind}" for place, kind in enumerate(kinds))]
    lines.append(
        f"{'lifecycle':13} {'from':18} {'trigger':17} {'all':>7} " + " ".join(f"{n:>5}" for n in range(len(kinds)))
    )
    for move in sorted(list_moves(shipped()), key=str):
        cells = " ".join(f"{sums.cells[move, kind]:>5}" for kind in kinds)
        lines.append(f"{move[0]:13} {move[1] or 'birth':18} {move[2]:17} {sums.moves[move]:>7} {cells}")
    lines.append(
        f"{'struck':50} {sum(sums.struck.values()):>7} " + " ".join(f"{sums.struck[kind]:>5}" for kind in kinds)
    )
    return lines


def gaps(sums: Sums) -> list[str]:
    """Moves that were taken too seldom, and cells that were never taken."""
    moves = sorted(list_moves(shipped()), key=str)
    seldom = [f"{move}: taken {sums.moves[move]} times" for move in moves if sums.moves[move] < LEAST]
    cells = [(move, kind) for move in moves for kind in KINDS if (move, kind) not in UNREACHABLE]
    return seldom + [f"{move} never while {kind}" for move, kind in cells if not sums.cells[move, kind]]


def describe(report: Report) -> str:
    """A failing seed, and a test to paste if the engine alone breaks it."""
    again = simulate(report.seed, keep_steps=True)
    small = shrink_steps(again.steps)
    lines = [f"seed {report.seed} ({', '.join(report.kinds)}):", *(f"  {text[:400]}" for text in report.violations[:3])]
    if small:
        return "\n".join([*lines, f"for tests/regressions ({len(small)} steps):", write_test(small, report.seed)])
    return "\n".join([*lines, "  (only the whole system breaks it: play the seed again)"])


def main() -> int:
    seconds, first = float(os.environ.get("SECONDS", "60")), int(os.environ.get("SEED", "100000"))
    began = time.monotonic()
    sums = soak(seconds, first)
    lasted = time.monotonic() - began
    missing = gaps(sums)
    print("\n".join([*table(sums), "", *figures(sums, lasted)]))
    print(f"{len(sums.broken)} seeds broke something; {len(missing)} gaps in the table")
    for report in sums.broken[:5]:
        print(describe(report))
    if seconds >= STRICT:
        print("\n".join(missing))
    return 1 if sums.broken or (seconds >= STRICT and missing) else 0


if __name__ == "__main__":
    sys.exit(main())
