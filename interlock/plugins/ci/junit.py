"""JUnit files: what tools say of tests, as rows. Whoever wrote one may have meant harm, so all of it is bounded."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator

import msgspec

from interlock.kernel.errors import InterlockError

BYTES_MAX = 16 << 20  # of a file
TESTS_MAX = 10_000  # of an attempt
NAME_MAX, MESSAGE_MAX = 300, 200  # characters
PASSED, FAILED, BROKE, LEFT_OUT = "passed", "failure", "error", "skipped"
LOST = (FAILED, BROKE)


class CiTest(msgspec.Struct, frozen=True, array_like=True):
    """A test, and how it ended."""

    name: str
    outcome: str  # passed, failure, error or skipped
    ms: int
    message: str = ""


def parse_junit(data: bytes, file: str, hide: Callable[[str], str] = str) -> list[CiTest]:
    """Returns the tests of a file.

    Parameters:
        hide: masks the secrets in a text.

    Raises:
        InterlockError: it is too large, or no such file.
    """
    if len(data) > BYTES_MAX:
        raise InterlockError(f"'{file}' has more than {BYTES_MAX >> 20} MiB, which are allowed")
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise InterlockError(f"'{file}' has a document type, which is not read")
    try:
        return list(list_cases(ElementTree.fromstring(data), hide))
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        raise InterlockError(f"'{file}' is no JUnit file: {error}") from None


def list_cases(root: ElementTree.Element, hide: Callable[[str], str]) -> Iterator[CiTest]:
    """Yields the tests of a document."""
    for case in root.iter("testcase"):
        ends = {child.tag: child for child in case if child.tag in (*LOST, LEFT_OUT)}
        outcome = next((word for word in (BROKE, FAILED, LEFT_OUT) if word in ends), PASSED)
        words = "" if outcome == PASSED else ends[outcome].get("message") or ends[outcome].text or ""
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        named = clean(hide(name), NAME_MAX) or "a test without a name"
        yield CiTest(named, outcome, read_ms(case), clean(hide(words), MESSAGE_MAX))  # masked before they are cut


def read_ms(case: ElementTree.Element) -> int:
    """Returns how long a test took, in milliseconds; 0 if nobody knows."""
    try:
        seconds = float((case.get("time") or "0").replace(",", ""))
    except ValueError:
        return 0
    return round(seconds * 1_000) if 0 <= seconds < 1e9 else 0


def clean(text: str, most: int) -> str:
    """Returns a text in one line of bounded length that can be kept."""
    return " ".join(text.replace("\0", " ").split())[:most]


def choose_tests(tests: Iterable[CiTest]) -> list[CiTest]:
    """Returns as many tests as are kept: those that were lost first."""
    return sorted(tests, key=lambda test: test.outcome not in LOST)[:TESTS_MAX]
