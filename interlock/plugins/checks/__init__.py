"""Checks: jobs and approvals below a unit that has entered a gate, whose ends are its verdict."""
