"""References to blobs: how bytes are named, and what a row holds in place of a large value."""

import re
from typing import NamedTuple

from interlock.kernel.errors import InterlockError

LARGE = 256 * 1024  # bytes of an input, a result or a step's result; a longer one is kept as a blob
DIGEST = re.compile(r"[0-9a-f]{64}")
PREFIX = '{"$blob":"sha256:'  # how every reference begins
REFERENCE = re.compile(r'\{"\$blob":"sha256:([0-9a-f]{64})","bytes":(0|[1-9][0-9]{0,15})\}')


class BlobRef(NamedTuple):
    """The name of some bytes: their SHA-256 in hexadecimal, and how many they are."""

    digest: str
    length: int


def is_large(text: str) -> bool:
    """Whether a JSON text is kept as a blob."""
    return len(text) > LARGE or (not text.isascii() and len(text.encode(errors="surrogatepass")) > LARGE)


def format_reference(blob: BlobRef) -> str:
    """Returns what a row holds instead of a large text. It is JSON, so that whoever does not know it can read on."""
    return f'{PREFIX}{blob.digest}","bytes":{blob.length}}}'


def parse_reference(text: str) -> BlobRef | None:
    """Returns the blob that a text stands for; None for a text that stands for itself."""
    if not text.startswith(PREFIX):
        return None
    match = REFERENCE.fullmatch(text)
    return BlobRef(match[1], int(match[2])) if match else None


def check_digest(digest: str) -> str:
    """Returns a digest, without the `sha256:` that may stand before it.

    Raises:
        InterlockError: it is none.
    """
    name = digest.removeprefix("sha256:")
    if not DIGEST.fullmatch(name):
        raise InterlockError(
            f"digest = {digest[:80]!r} is not allowed; allowed are 64 hexadecimal digits in lower case"
        )
    return name
