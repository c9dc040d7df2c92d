"""`interlock validate-log`: is every line of a transition log a legal move?"""


def validate_log() -> None:
    """Check a transitions.jsonl."""
