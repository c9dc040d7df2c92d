"""Plays seeds in a process of its own, and prints a line a seed: what two runs must have in common."""

import sys

from interlock.testing import simulate


def main(first: int, last: int) -> None:
    for seed in range(first, last):
        report = simulate(seed)
        print(seed, report.hash, report.commands, report.units, len(report.violations), *report.violations[:2])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
