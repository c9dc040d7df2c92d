"""Simulation: a whole system in one process, made from one seed; the same seed gives the same history everywhere."""

from interlock.testing.simulation.runner import Report, simulate

__all__ = ["Report", "simulate"]
