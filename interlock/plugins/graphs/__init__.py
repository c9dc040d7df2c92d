"""Graphs: what children of one parent, or jobs that come after others, know of each other (document 003)."""
