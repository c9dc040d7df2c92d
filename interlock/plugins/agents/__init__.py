"""Agent runs: one job at a time decides a run, and what it has recorded is there after a resume."""
