"""The pages: what runs and why, for people, in the process that serves the API."""
