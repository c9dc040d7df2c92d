"""The model check: explores everything that can happen to one unit."""
