"""Effects: calls to the outside whose outcome is known, or is asked for: never a silent second call."""
