"""Output of a CI attempt: its log, and the last lines of it, which are shown while it runs."""

from collections import deque
from collections.abc import Iterable

from interlock.process.masking import Masker
from interlock.worker.context import JobContext

TAIL_LINES = 40
LINE_MAX = 400  # characters of a line that is shown


class CiOutput:
    """The output of one attempt."""

    def __init__(self, ctx: JobContext, secrets: Iterable[str] = ()) -> None:
        """`secrets`: what is masked in lines of ours; output of steps comes without them."""
        self.ctx, self.masker = ctx, Masker(secrets)
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.partial = b""  # the beginning of a line

    def write(self, data: bytes) -> None:
        """Adds bytes to the log, and to the last lines that are shown."""
        self.ctx.write_log(data)
        *lines, self.partial = (self.partial + data).split(b"\n")
        self.partial = self.partial[:LINE_MAX]
        self.tail.extend(decode_line(line) for line in lines[-TAIL_LINES:])

    def write_line(self, text: str) -> None:
        """Adds a line of ours, which may name a file that a step has called as it liked."""
        self.write(f"{self.hide(text)}\n".encode(errors="backslashreplace"))

    def hide(self, text: str) -> str:
        """Returns a text with the job's secrets masked."""
        data = text.encode(errors="backslashreplace")
        return (self.masker.feed(data) + self.masker.flush()).decode()

    def end_line(self) -> None:
        """Ends a line that a step began."""
        if self.partial:
            self.write(b"\n")


def decode_line(line: bytes) -> str:
    """Returns a line of output as it can be shown."""
    text = line.rpartition(b"\r")[2] if not line.endswith(b"\r") else line[:-1].rpartition(b"\r")[2]
    return clean_line(text[: 4 * LINE_MAX].decode(errors="replace"))[:LINE_MAX]


def clean_line(line: str) -> str:
    """Returns a line of a log without what would move a terminal's cursor."""
    return "".join(sign if sign.isprintable() or sign == "\t" else "\N{REPLACEMENT CHARACTER}" for sign in line)
