"""Writes a log of so many bytes in which no entity comes twice: `python many.py BYTES`."""

import sys

LINES = 10_000
LINE = (
    b'{"timestamp":"2024-01-15T10:30:00.000Z","event_type":"task_state_transition","severity":"info",'
    b'"entity_id":"task-%d","from_state":"pending","to_state":"queued","trigger":"scheduler_assigned",'
    b'"metadata":{"retry_count":0}}\n'
)


def write(size: int) -> None:
    """At least `size` bytes were written, in whole blocks of lines."""
    written = first = 0
    while written < size:
        block = b"".join([LINE % number for number in range(first, first + LINES)])
        sys.stdout.buffer.write(block)
        written, first = written + len(block), first + LINES


if __name__ == "__main__":
    write(int(sys.argv[1]))
