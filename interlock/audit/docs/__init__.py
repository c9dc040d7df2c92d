"""Lifecycles for readers: pages, diagrams, and plain data for other programs."""
