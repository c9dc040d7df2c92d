"""Workflows: runs of stored templates, outputs of steps, conditions, compensation and signals (document 001)."""
