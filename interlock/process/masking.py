"""Mask secrets in a stream of bytes, also across chunks.

A secret can begin in one chunk and end in the next. So the end of a chunk that could be the beginning of a secret is
held back, and nothing else is: output that has nothing of a secret passes at once. Occurrences that overlap are masked
as one. What is held back is always shorter than the longest secret.
"""

import base64
import re
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote, quote_plus

from interlock.kernel.errors import InterlockError

MASK = b"***"
ENCODERS = (base64.b64encode, base64.urlsafe_b64encode)
SECRET_MIN = 4  # bytes; what is shorter would be masked everywhere, and says nothing


class Masker:
    """Masks secrets in one stream; `feed` takes each chunk, and `flush` returns what was held back at the end."""

    def __init__(self, secrets: Iterable[str | bytes] = ()) -> None:
        """Raises InterlockError for a secret that is too short to be masked."""
        self.spellings = sorted({text for secret in secrets for text in list_spellings(secret)}, key=len, reverse=True)
        self.first_bytes = {text[0] for text in self.spellings}
        self.longest = len(self.spellings[0]) if self.spellings else 0
        alternatives = b"|".join(map(re.escape, self.spellings))
        # Looking ahead finds occurrences that overlap; of those that begin at one place, the longest stands first.
        self.pattern = re.compile(b"(?=(" + alternatives + b"))", re.DOTALL)
        self.kept = b""
        self.covered = 0  # bytes at the beginning of `kept` that are part of a secret whose mask was returned already

    def feed(self, chunk: bytes) -> bytes:
        """Returns what is known to be no beginning of a secret, with secrets masked."""
        if not self.spellings:
            return chunk
        data = self.kept + chunk
        cut = self.find_cut(data)
        return self.take(data, cut)

    def flush(self) -> bytes:
        """Returns the rest, at the end of the stream."""
        return self.take(self.kept, len(self.kept)) if self.spellings else b""

    def find_cut(self, data: bytes) -> int:
        """Returns where the earliest possible beginning of a secret stands that has not ended yet."""
        for place in range(max(0, len(data) - self.longest + 1), len(data)):
            if data[place] in self.first_bytes:
                tail = data[place:]
                if any(len(tail) < len(text) and text.startswith(tail) for text in self.spellings):
                    return place
        return len(data)

    def take(self, data: bytes, cut: int) -> bytes:
        """Returns the bytes before `cut` with secrets masked, and keeps the rest."""
        parts: list[bytes] = []
        reach = self.covered  # everything before it is returned or masked
        for match in self.pattern.finditer(data):
            if match.start() >= cut:
                break
            if match.start() >= reach:
                parts += [data[reach : match.start()], MASK]
            reach = max(reach, match.end(1))
        parts.append(data[reach:cut])
        self.kept, self.covered = data[cut:], max(0, reach - cut)
        return b"".join(parts)


def mask(data: bytes, secrets: Iterable[str | bytes]) -> bytes:
    """Returns bytes with secrets masked.

    Raises:
        InterlockError: a secret that is too short to be masked.
    """
    masker = Masker(secrets)
    return masker.feed(data) + masker.flush()


def list_spellings(secret: str | bytes) -> Iterator[bytes]:
    """Lists what stands for a secret in output: itself, each of its lines, and how it is written in base64 and URLs."""
    value = secret.encode() if isinstance(secret, str) else bytes(secret)
    if len(value.strip()) < SECRET_MIN:
        raise InterlockError(f"a secret of fewer than {SECRET_MIN} bytes cannot be masked; give a longer one")
    lines = [line.strip() for line in value.splitlines()]
    encoded = [text for encode in ENCODERS for text in list_encoded(value, encode)]
    for text in (value, *lines, *encoded, quote(value, safe="").encode(), quote_plus(value).encode()):
        if len(text) >= SECRET_MIN:
            yield text


def list_encoded(value: bytes, encode: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Lists how a value is written in base64: alone, and behind other bytes, as a password is behind its user's name.

    Three bytes are four letters, so there are three ways, by how many bytes stand before. Letters that depend on what
    stands before or behind are left out.
    """
    yield encode(value).rstrip(b"=")
    for before in range(3):
        shared = -(-before * 4 // 3)  # letters that say something of what stands before too
        size = before + len(value)
        yield encode(bytes(before) + value)[shared : size * 4 // 3]
