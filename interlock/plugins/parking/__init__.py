"""Parking: a job waits for signals, for children of its own or for a time, and nobody works for it meanwhile."""
