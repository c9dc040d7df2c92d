"""What a command may say: every verb asks here, so that a wrong word is told what the right ones are."""

import msgspec

from interlock.kernel.errors import InterlockError

NAME_MAX = 200
PRIORITY_MAX = 2**31 - 1


def one_of(name: str, word: str, allowed: tuple[str, ...]) -> None:
    if word not in allowed:
        raise InterlockError(f"{name} = '{word}' is not allowed; allowed are {', '.join(allowed)}")


def between(name: str, number: int, least: int, most: int | None = None) -> None:
    if number < least or (most is not None and number > most):
        allowed = f"at least {least}" if most is None else f"{least} to {most}"
        raise InterlockError(f"{name} = {number} is not allowed; allowed is {allowed}")


def named(name: str, text: str) -> None:
    """A name that people and keys can bear."""
    if not text or len(text) > NAME_MAX or "\0" in text:
        raise InterlockError(f"{name} = {text[:40]!r} is not allowed; allowed are 1 to {NAME_MAX} characters, none NUL")


def keepable(name: str, text: str | None) -> None:
    """Text that both databases can keep."""
    if text is not None and "\0" in text:
        raise InterlockError(f"{name} has a NUL character, which is not allowed")


def capabilities(words: tuple[str, ...]) -> None:
    for word in words:
        named("a capability", word)
        if "," in word:
            raise InterlockError(f"the capability '{word}' has a comma, which is not allowed")


def json_text(name: str, text: str) -> None:
    """Text that is JSON, whatever it says."""
    try:
        msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise InterlockError(f"{name} is not JSON: {error}") from None
    except RecursionError:
        raise InterlockError(f"{name} is nested too deeply to be read") from None
