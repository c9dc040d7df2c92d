"""For tests of programs that use Interlock: a virtual clock, and a worker that does one thing at a time."""

from interlock.testing.simulation.runner import simulate
from interlock.testing.stage import Stage, staged

__all__ = ["Stage", "simulate", "staged"]
