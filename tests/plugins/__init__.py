"""Plugins: the seam of the core, proven by a plugin that the core knows nothing of."""
