"""Lifecycles for readers: pages, drawings, and plain data for other programs."""
