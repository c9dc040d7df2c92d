"""Make any text fit to be stored. Pure."""

CUT = "\n… {left:,} bytes were cut here …\n"


def make_storable(text: str) -> str:
    """The same text without what no database keeps: zero bytes and half letters."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def make_plain(text: str) -> str:
    """The same text without what a terminal would obey: only lines and tabs are left of what is no letter."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


def cut_middle(text: str, most: int) -> str:
    """A text of at most `most` bytes in UTF-8: the head and the tail of one that is longer, and how much is missing."""
    if len(text) * 4 <= most:
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    room = max(0, most - len(CUT.format(left=len(data)).encode()))
    head, tail = room // 2, room - room // 2
    mark = CUT.format(left=len(data) - room)
    return data[:head].decode("utf-8", "ignore") + mark + data[len(data) - tail :].decode("utf-8", "ignore")
