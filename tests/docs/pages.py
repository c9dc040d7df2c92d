"""A page as a reader follows it: its files are written, its commands typed, and what it says they print is compared."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^```(\w+)[ ]?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURES = ("mermaid",)
OTHERS = ("in another terminal", "in a third terminal")
PATIENCE = 180.0  # seconds until a command is given up; none takes so long, also where others run beside it
STOPPED = "^C"


class Block(NamedTuple):
    """A fenced block: its language, and what stands behind it: the file that it is, or the terminal that it is typed in."""

    language: str
    name: str
    text: str


def blocks(text: str) -> list[Block]:
    return [Block(*found) for found in FENCE.findall(text)]


def said(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with what it prints."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


def pattern(printed: str) -> str:
    """What a page says as a pattern: `…` is anything; ids, times and the width of columns do not matter."""
    words = []
    for word in re.split(r"(…|\s+|\b[a-z_]+_[0-9a-z]{1,13}\b(?=[\s:,.]|$)|\d{4}-\d\d-\d\dT[\d:.]+Z)", printed.strip()):
        if word == "…":
            words.append(r"[\s\S]*")
        elif re.fullmatch(r"(job|worker)_[0-9a-z]+", word):
            words.append(rf"{word.partition('_')[0]}_[0-9a-z]+")
        elif re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", word):
            words.append(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
        else:
            words.append(r"\s+" if word.isspace() else re.escape(word))
    return "".join(words)


class Terminal:
    """A shell that keeps what was exported and set, in a folder where `interlock` and `python` are this project's."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        place = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("INTERLOCK", "PYTEST"))}
        self.folder, self.log = folder, folder / f"terminal-{time.monotonic_ns()}.log"
        self.env = {**clean, "PATH": place, "NO_COLOR": "1", "COLUMNS": "200", "PYTHONUNBUFFERED": "1", **env}
        self.left: subprocess.Popen[str] | None = None

    def type(self, command: str) -> str:
        """What a command prints. What it exports, and the variables that it sets, are kept for the next one."""
        kept = self.folder / "environment"
        script = f"set -a\n{command}\ncode=$?\nset +a\nenv -0 > '{kept}'\nexit $code"
        done = subprocess.run(
            ["sh", "-c", script], cwd=self.folder, env=self.env, text=True, timeout=PATIENCE, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.env = dict(pair.split("=", 1) for pair in kept.read_text().split("\0") if pair)
        return done.stdout

    def leave(self, command: str) -> None:
        """A command runs on, until it is stopped."""
        with self.log.open("w") as log:
            self.left = subprocess.Popen(
                ["sh", "-c", f"exec {command}"], cwd=self.folder, env=self.env, text=True, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def printed(self, wanted: str) -> None:
        """What runs on has printed what the page says."""
        end = time.monotonic() + PATIENCE
        while not re.match(pattern(wanted), self.log.read_text().strip()):
            assert time.monotonic() < end, self.log.read_text()
            assert self.left is not None
            assert self.left.poll() is None, self.log.read_text()
            time.sleep(0.02)

    def wait_for_output(self) -> None:
        """Whoever is interrupted while Python still imports cannot end well; by its first words it has begun."""
        end = time.monotonic() + PATIENCE
        while not self.log.read_text() and self.left is not None and self.left.poll() is None:
            assert time.monotonic() < end, f"{self.left.args} says nothing"
            time.sleep(0.02)

    def stop(self) -> None:
        if self.left is not None:
            self.wait_for_output()
            self.left.send_signal(signal.SIGINT)
            ended = self.left.wait(PATIENCE)
            assert ended == 0, f"{self.left.args} ended with {ended}: {self.log.read_text()}"
            self.left = None


class Reader:
    """Follows a page in a folder. Words of the page that stand for something of the reader's are given in `own`."""

    def __init__(self, folder: Path, own: dict[str, str], env: dict[str, str] | None = None) -> None:
        self.folder, self.own, self.env = folder, own, env or {}
        self.here = Terminal(folder, self.env)
        self.others = {name: Terminal(folder, self.env) for name in OTHERS}

    def export(self, line: str) -> None:
        """The reader's shells are told this, and know nothing of the project but by it."""
        for terminal in (self.here, *self.others.values()):
            ours = str(Path(sys.executable).parent)
            parts = terminal.env["PATH"].split(os.pathsep)
            terminal.env["PATH"] = os.pathsep.join(part for part in parts if part != ours)
            terminal.type(line)

    def follow(self, block: Block) -> None:
        text = block.text
        for word, mine in self.own.items():
            text = text.replace(word, mine)
        if block.language in PICTURES:
            return
        if block.language != "console":
            assert block.name, f"a reader does not know where this belongs:\n{text}"
            with (self.folder / block.name).open("a") as file:
                file.write(text + "\n")
        elif block.name in OTHERS:
            self.elsewhere(self.others[block.name], text)
        else:
            assert not block.name, block.name
            for command, printed in said(text):
                seen = self.here.type(command)
                assert re.fullmatch(pattern(printed), seen.strip()), (
                    f"$ {command}\n{seen}\nand the page says\n{printed}"
                )

    def elsewhere(self, there: Terminal, text: str) -> None:
        if text.startswith(STOPPED):
            there.stop()
        for command, printed in said(text):
            there.stop()
            there.env |= {name: self.here.env[name] for name in self.here.env if name.startswith("INTERLOCK")}
            there.leave(command)
            there.printed(printed)

    def end(self) -> None:
        for terminal in reversed(self.others.values()):
            terminal.stop()
