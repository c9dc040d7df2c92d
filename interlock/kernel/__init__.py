"""The law: pure data and pure functions. No clock, no I/O, no randomness."""
