"""How fast blobs are written to a folder and read from it: `python -m bench.blobs [--mib 256]`.

They are of 1 MiB and of 64 MiB, each with bytes of its own; a write ends when they are on disk. Prints MB per second of
processor time, and by the clock; `--mib` is how much is written of each size.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from interlock.blobs.folder import FolderBlobs
from interlock.blobs.store import PIECE, write_pieces
from interlock.kernel.blobs import BlobRef

MIB, TENANT = 1 << 20, 1
SIZES = (1, 64)  # MiB


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--mib", type=int, default=256)
    mib = parser.parse_args().mib
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            measure_blobs(FolderBlobs(f"{folder}/blobs"), size, max(1, mib // size))
    return 0


def print_rate(what: str, size: int, call: Callable[[], None]) -> None:
    processor, clock = time.process_time(), time.perf_counter()
    call()
    processor, clock = time.process_time() - processor, time.perf_counter() - clock
    print(
        f"{what}: {size / processor / 1e6:,.0f} MB per second of processor time, {size / clock / 1e6:,.0f} by the clock"
    )


def make_pieces(first: bytes, size: int) -> Iterator[bytes]:
    """Yields bytes that no other blob has."""
    yield first
    left, piece = size - len(first), bytes(PIECE)
    while left > 0:
        yield piece[:left]
        left -= PIECE


def measure_blobs(blobs: FolderBlobs, mib: int, count: int) -> None:
    """Writes so many blobs of one size, and reads them."""
    known = list[BlobRef]()

    def write() -> None:
        known.extend(write_pieces(blobs, TENANT, make_pieces(os.urandom(32), mib * MIB)) for _ in range(count))

    def read() -> None:
        for blob in known:
            assert sum(map(len, blobs.read(TENANT, blob.digest))) == blob.length

    print_rate(f"{count} blobs of {mib} MiB written", count * mib * MIB, write)
    print_rate(f"{count} blobs of {mib} MiB read", count * mib * MIB, read)


if __name__ == "__main__":
    sys.exit(main())
