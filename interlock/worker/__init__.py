"""What runs jobs: a loop that claims, runs and reports under leases, beside the engine or far from it."""
