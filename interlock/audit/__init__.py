"""Checks and drawings, all read-only: laws, model check, log checker, diagrams."""
