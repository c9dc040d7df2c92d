"""CI for a repository: what its config says, which jobs a change needs, and why."""
