"""Secrets are masked in a stream, wherever it is cut."""

import base64
import re
from itertools import pairwise
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.kernel.errors import InterlockError
from interlock.process import Masker, mask
from interlock.process.masking import MASK

# Few letters, so that secrets overlap each other and themselves; none that base64 or a URL would write otherwise.
secret_texts = st.text("ab", min_size=4, max_size=9)
streams = st.text("abc", max_size=60)


@settings(max_examples=400, deadline=None)
@given(st.lists(secret_texts, min_size=1, max_size=3), streams, st.lists(st.integers(0, 60), max_size=8))
def test_no_byte_of_a_secret_passes_and_chunks_do_not_matter(secrets: list[str], text: str, cuts: list[int]) -> None:
    data = text.encode()
    places = sorted({0, *(min(cut, len(data)) for cut in cuts), len(data)})
    masker = Masker(secrets)
    chunks = [data[start:end] for start, end in pairwise(places)]
    masked = b"".join(map(masker.feed, chunks)) + masker.flush()
    hidden = {
        place
        for secret in secrets
        for match in re.finditer(f"(?={secret})", text)
        for place in range(match.start(), match.start() + len(secret))
    }
    shown = "".join(letter for place, letter in enumerate(text) if place not in hidden)
    assert masked.replace(MASK, b"").decode() == shown
    assert masked == mask(data, secrets)


@settings(max_examples=200, deadline=None)
@given(st.lists(secret_texts, min_size=1, max_size=3), st.lists(st.text("abc", max_size=5), max_size=30))
def test_less_is_held_back_than_the_longest_secret(secrets: list[str], chunks: list[str]) -> None:
    masker = Masker(secrets)
    for chunk in chunks:
        masker.feed(chunk.encode())
        assert len(masker.kept) < masker.longest
        assert not masker.kept or any(text.startswith(masker.kept) for text in masker.spellings)


def test_what_is_no_beginning_of_a_secret_passes_at_once() -> None:
    masker = Masker(["open-sesame"])
    assert masker.feed(b"a line\nopen") == b"a line\n"
    assert masker.feed(b" the door\nopen-ses") == b"open the door\n"
    assert masker.feed(b"ame!") == b"***!"
    assert masker.flush() == b""


def test_a_longer_secret_is_waited_for_though_a_shorter_one_has_ended() -> None:
    masker = Masker(["abcd", "abcdefgh"])
    assert masker.feed(b"abcd") == b""
    assert masker.feed(b"efgh.") == b"***."


def test_a_stream_of_one_secret_is_one_mask_and_nothing_is_kept() -> None:
    masker = Masker(["aaaa"])
    masked = b"".join(masker.feed(b"a" * 1000) for _ in range(100)) + masker.flush()
    assert masked == MASK


@pytest.mark.parametrize(
    "spelling",
    [
        "p@ss word/42",
        base64.b64encode(b"p@ss word/42").decode(),
        base64.b64encode(b"p@ss word/42\n").decode()[:16],
        quote("p@ss word/42", safe=""),
        "p%40ss+word%2F42",
    ],
)
def test_base64_and_url_forms_are_masked_too(spelling: str) -> None:
    assert mask(f"<{spelling}>".encode(), ["p@ss word/42"]) == b"<***>"


def test_each_line_of_a_secret_is_masked() -> None:
    key = "-----BEGIN KEY-----\nMIIEpAIB\nxx\n-----END KEY-----\n"
    assert mask(b"its first line is MIIEpAIB, and xx is too short", [key]) == (
        b"its first line is ***, and xx is too short"
    )
    assert mask(key.encode(), [key]) == MASK


def test_without_secrets_everything_passes() -> None:
    assert mask(b"anything", []) == b"anything"


def test_bytes_are_secrets_too() -> None:
    assert mask(b"\xff\xfe\x00\x01 passes", [b"\xff\xfe\x00\x01"]) == b"*** passes"


@pytest.mark.parametrize("secret", ["", "abc", "   abc\n", b"\x00"])
def test_what_is_too_short_to_be_masked_is_refused(secret: str | bytes) -> None:
    with pytest.raises(InterlockError, match="a secret of fewer than 4 bytes cannot be masked; give a longer one"):
        Masker([secret])
