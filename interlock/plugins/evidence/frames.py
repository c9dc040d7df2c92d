"""The log of an attempt that is over: compressed in frames of one mebibyte, so that a part of it can be read alone.

The frames together are a file of gzip, which any program can read: `zcat` of the blob shows the whole log.
"""

import gzip
from collections.abc import Sequence
from typing import NamedTuple

FRAME = 1024 * 1024  # bytes of a log that are compressed together


class Frame(NamedTuple):
    """One stretch of a log: where it begins, how long it is, and where its compressed bytes are in the blob."""

    start: int
    length: int
    place: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.length


def compress(data: bytes) -> bytes:
    """Returns a member of a gzip file. The same bytes are always compressed to the same."""
    return gzip.compress(data, compresslevel=6, mtime=0)


def decompress(data: bytes) -> bytes:
    """Returns what `compress` was given."""
    return gzip.decompress(data)


def find_frames(frames: Sequence[Frame], start: int, end: int) -> list[Frame]:
    """Returns the frames that hold bytes between `start` and `end`."""
    return [frame for frame in frames if frame.start < end and frame.end > start]
