"""Log output of workers and the server: lines of text or JSON on standard error, and a status line on a terminal."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from interlock.kernel.api_keys import redact_keys
from interlock.kernel.errors import InterlockError

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
CHATTY = ("httpx", "httpcore")
FACTS = ("unit", "fence")  # what a handler's own log lines carry


class TextFormatter(logging.Formatter):
    """Formats a record as a line for people."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return f"{at}  {mark}{super().format(record)}"


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        facts = {name: getattr(record, name) for name in FACTS if hasattr(record, name)}
        line = {"at": at, "level": record.levelname.lower(), "logger": record.name, "text": super().format(record)}
        return msgspec.json.encode({**line, **facts, **getattr(record, "facts", {})}, enc_hook=str).decode()


class StderrHandler(logging.Handler):
    """Writes to standard error, above the live line if there is one."""

    def __init__(self, console: Console | None) -> None:
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        text = redact_keys(self.format(record))
        if self.console:
            self.console.print(Text(text), soft_wrap=True)
        else:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Return whether a record is worth a line: not every request of an HTTP client is."""
    return record.levelno >= logging.WARNING or not record.name.startswith(CHATTY)


@contextmanager
def write_log(kind: str, level: str, line: Callable[[], str]) -> Iterator[None]:
    """Write the log to standard error while this lasts; on a terminal, show `line` below it."""
    for name, word, words in (("log-format", kind, FORMATS), ("log-level", level, LEVELS)):
        if word not in words:
            raise InterlockError(f"--{name} {word} is not allowed; allowed are {', '.join(words)}")
    terminal = kind == "text" and sys.stderr.isatty()
    console = Console(stderr=True, highlight=False) if terminal else None
    handler = StderrHandler(console)
    handler.addFilter(is_worth_logging)
    handler.setFormatter(TextFormatter() if kind == "text" else JsonFormatter())
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level.upper())
    try:
        if console:
            with Live(console=console, get_renderable=lambda: Text(line()), transient=True, redirect_stderr=False):
                yield
        else:
            yield
    finally:
        root.setLevel(before)
        root.removeHandler(handler)
