"""Workflows: runs of stored templates, outputs of steps, conditions and compensation (document 001)."""
