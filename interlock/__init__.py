"""Interlock: a durable work orchestrator on one small kernel of explicit state machines."""

__version__ = "0.1.0"
