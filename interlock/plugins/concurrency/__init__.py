"""Concurrency: mutexes, limits and rates, by key."""
