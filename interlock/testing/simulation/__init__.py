"""A whole system in one process, from one number: the same seed has the same history, everywhere."""

from interlock.testing.simulation.runner import Report, simulate

__all__ = ["Report", "simulate"]
