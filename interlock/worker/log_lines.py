"""The worker's log lines: words that operators search for, then facts as key=value, then the reason.

    lease lost, handler stopped id=job_4r1 task=add attempt=2 fence=3: the lease expired

The same facts are in `record.facts`, from which the command line makes lines of JSON.
"""

import logging
import re
from typing import Any

import msgspec

from interlock.core.lease_secrets import hash_secret
from interlock.kernel.commands import LeaseGrant
from interlock.kernel.ids import format_id

log = logging.getLogger("interlock.worker")
HASH_SHOWN = 16  # letters
PLAIN = re.compile(r'[^\s"=]+')  # a value that is shown as it is


def log_event(level: int, event: str, reason: object = "", **facts: Any) -> None:
    """Logs what happened, with facts about it and the reason."""
    text = " ".join((event, *(f"{name}={format_value(value)}" for name, value in facts.items())))
    log_line(level, text, reason, {**facts, **({"why": str(reason)} if reason else {})})


def log_job(level: int, event: str, grant: LeaseGrant, reason: object = "", **facts: Any) -> None:
    """Logs what happened to a job; `facts` are only for programs."""
    if log.isEnabledFor(level):
        about, task = describe_job(grant), format_value(grant.task)
        text = f"{event} id={about['id']} task={task} attempt={grant.attempt} fence={grant.fence}"
        log_line(level, text, reason, {**about, **facts})


def log_line(level: int, text: str, reason: object, facts: dict[str, Any]) -> None:
    """Logs a text. Who called it is not looked up: that would cost more than anything else here."""
    if log.isEnabledFor(level):
        line = f"{text}: {reason}" if reason else text
        log.handle(log.makeRecord(log.name, level, __file__, 0, "%s", (line,), None, extra={"facts": facts}))


def format_value(value: Any) -> str:
    """A word stays as it is; text with spaces is quoted."""
    text = str(value)
    return text if PLAIN.fullmatch(text) else quote(text)


def quote(text: str) -> str:
    """Quotes a text, so that it is one word of a line."""
    return msgspec.json.encode(text).decode()


def describe_job(grant: LeaseGrant) -> dict[str, Any]:
    """Returns what every log line says of a job, so that programs can join the lines of one job, run or lease.

    The job has the id that users see and its number, its run a number, and its lease the stored hash.
    """
    return {
        "id": format_id(grant.lifecycle, grant.unit), "unit": grant.unit, "run": grant.parent, "task": grant.task,
        "attempt": grant.attempt, "fence": grant.fence, "lease_hash": hash_secret(grant.lease)[:HASH_SHOWN],
    }  # fmt: skip
