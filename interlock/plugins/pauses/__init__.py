"""Pauses: of a queue, a task, or a job or run with all below it, nothing starts until it is unpaused."""
