"""The worker: claims jobs, runs their handlers under leases, and reports; beside the engine or over HTTP."""
