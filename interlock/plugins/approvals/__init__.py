"""Approvals: who may give a verdict, and how many it takes (document 001)."""
