"""The verbs, and the one door through which all of them are asked."""
