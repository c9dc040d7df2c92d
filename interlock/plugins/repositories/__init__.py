"""Repositories: work that needs one goes to workers that serve it, and its commits are merged by leased jobs."""
