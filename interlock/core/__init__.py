"""The engine: one way in for all commands, the verbs behind them, and the one file that writes units."""
