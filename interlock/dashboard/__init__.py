"""The web pages, served by the process that serves the API."""
