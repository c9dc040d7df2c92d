"""Format and parse ids, such as `job_4r1`."""

from interlock.kernel.errors import Unknown

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # without i, l, o and u, which are misread or misheard
MISREAD = str.maketrans("ilo", "110")


def format_id(lifecycle: str, unit: int) -> str:
    """The id of a unit, as it is shown."""
    word, rest = "", abs(unit)  # no id is negative, but a message may have to show one that somebody made up
    while rest:
        rest, digit = divmod(rest, len(ALPHABET))
        word = ALPHABET[digit] + word
    return f"{lifecycle}_{'-' if unit < 0 else ''}{word or '0'}"


def format_kind(lifecycle: str) -> str:
    """What a unit is called in a sentence: a step, a task, a CI job, an agent job."""
    first, *more = lifecycle.split("_")
    return " ".join(("CI" if first == "ci" else first, *more))


def parse_id(text: str) -> int:
    """The unit that somebody means: by its whole id, or by its last word.

    Raises:
        Unknown: there is none.
    """
    word = text.strip().lower().rpartition("_")[2].translate(MISREAD)
    if not word or len(word) > 13 or any(character not in ALPHABET for character in word):
        raise Unknown(f"'{text}' is no id; one looks like job_4r1")
    unit = 0
    for character in word:
        unit = unit * len(ALPHABET) + ALPHABET.index(character)
    return unit
