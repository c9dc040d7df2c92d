"""The HTTP server: the API, authentication, and a safe start."""
