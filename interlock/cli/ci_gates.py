"""Gates of a CI run: ask the person at the terminal; without a terminal the gates wait in the inbox.

The table goes on meanwhile, so nobody waits for the answer: each look reads the keys that were pressed since the one
before. For that the terminal hands over keys as they are pressed; it is set back at the end. A process that a shell has
put into the background must leave the terminal alone, and is treated as one without.
"""

import os
import select
import sys
import termios
import tty
from contextlib import suppress
from typing import Any

from interlock.cli.ci_local import LocalCi
from interlock.cli.ci_screen import Screen
from interlock.cli.ci_words import name_gate
from interlock.cli.options import get_actor
from interlock.cli.output import on_terminal
from interlock.kernel.commands import Decide
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.plugins.ci.orders import APPROVAL
from interlock.plugins.ci.queries import CiJobRow

YES, NO, END = "y", "n", "\x04"


class Gates:
    """The gates that are open, one of which a person is asked about."""

    def __init__(self, local: LocalCi, screen: Screen) -> None:
        self.local, self.screen = local, screen
        self.announced: set[int] = set()  # those whose place in the inbox was printed
        self.current: int | None = None  # the one that a person is asked about
        self.settings: list[Any] | None = None  # of the terminal, as they were

    def look(self, jobs: list[CiJobRow]) -> None:
        """Ask about the first gate that is open, and take the answer if there is one."""
        waiting = [job for job in jobs if job.lifecycle == APPROVAL and job.category == "gate"]
        if self.current is not None and self.current not in [job.unit for job in waiting]:
            self.current = None  # somebody else has decided, or its time is over
        for job in waiting:
            if job.unit in self.announced:
                continue
            if not has_keys():
                self.tell(job)
            elif self.current is None:
                self.current = job.unit
                self.take_terminal()
                self.screen.say(f"'{name_gate(job)}' waits for approval; may it begin? [y/n]")
            elif self.current == job.unit:
                self.take_answer(job)

    def tell(self, job: CiJobRow) -> None:
        """Say where a gate waits."""
        self.announced.add(job.unit)
        unit = format_id(APPROVAL, job.unit)
        self.screen.say(f"'{name_gate(job)}' waits for {unit}: interlock inbox --db {self.local.app.url}")

    def take_answer(self, job: CiJobRow) -> None:
        """Decide a gate as the keys say that were pressed; every other key means nothing."""
        for key in read_keys():
            if key in (YES, NO):
                self.decide(job, key == YES)
                break
            if key == END:
                self.tell(job)
                break
        else:
            return
        self.current = None

    def decide(self, job: CiJobRow, approved: bool) -> None:
        trigger = "approve" if approved else "reject"
        decision = Decide(unit=job.unit, trigger=trigger, actor=get_actor(None), reason="asked on the terminal")
        try:
            self.local.app.send(decision)
        except InterlockError as error:
            self.screen.say(str(error))

    def take_terminal(self) -> None:
        """Have keys handed over as they are pressed. Ctrl-C stays what it is."""
        if self.settings is None:
            with suppress(termios.error):
                self.settings = termios.tcgetattr(sys.stdin)
                tty.setcbreak(sys.stdin, termios.TCSANOW)

    def close(self) -> None:
        """Set the terminal back to what it was."""
        if self.settings is not None:
            with suppress(termios.error):
                termios.tcsetattr(sys.stdin, termios.TCSANOW, self.settings)
            self.settings = None


def has_keys() -> bool:
    """Return whether a person sees the output and can press keys that come here."""
    try:
        return on_terminal() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # it is no terminal, or closed
        return False


def read_keys() -> str:
    """Return the keys that were pressed and not read yet; the end of the input is a key too."""
    keys = ""
    while select.select([sys.stdin], [], [], 0)[0]:
        data = os.read(sys.stdin.fileno(), 1024)
        keys += data.decode(errors="replace") if data else END
        if not data:
            break
    return keys
