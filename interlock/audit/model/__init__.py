"""The model check: everything that can happen to one unit is explored."""
