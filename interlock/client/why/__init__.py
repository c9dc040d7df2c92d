"""Why a unit is where it is, and what keeps it there."""
