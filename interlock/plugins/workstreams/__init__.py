"""Workstreams: graphs of tasks that are checked, and judged as a whole (document 003)."""
