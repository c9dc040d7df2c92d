"""Why an attempt failed: an ordered table from what its runner saw to a class. The first row that fits decides.

A runner says what it saw: the stage, the step, the exit code or the signal, and the last line. It never says what kind
of failure that is, nor whether the job is tried again (S-6): both follow from the class, here.
"""

import re
from collections.abc import Callable

import msgspec

EXPLANATION_MAX = 160  # characters
LOST, INFRA, MEMORY, FLAKY, TEST, BUILD, LINT = "runner_lost", "infra", "memory", "flaky", "test", "build", "lint"
STEP, TIMEOUT, CANCELLED, UNKNOWN = "step", "timeout", "cancelled", "unknown"
# The classes, and the six of document 004's companion. Its TOOLING is told from INFRA by nothing that a runner sees.
COMPANION = dict(
    row.split()
    for row in """
    runner_lost  INFRA
    infra        INFRA
    memory       INFRA
    flaky        FLAKY
    test         USER
    build        USER
    lint         USER
    step         USER
    timeout      USER
    cancelled    CANCELED
    unknown      UNKNOWN
    """.strip().splitlines()
)
# By class: the rule of the config under which it is tried again.
RULES = {INFRA: "runner", FLAKY: "flaky", TIMEOUT: "timeout"}
CHECKOUT, START, STEPS, ARTIFACTS, UPLOAD = "checkout", "start", "step", "artifacts", "upload"  # stages of an attempt
KILLED, TIMED_OUT = 137, 124  # a shell whose command was ended by KILL, or by the command `timeout`
NETWORK = re.compile(
    r"could not resolve host|temporary failure in name resolution|connection (refused|reset|timed out)|"
    r"network is unreachable|tls handshake|no space left on device|503 service unavailable|502 bad gateway",
    re.IGNORECASE,
)
WORDS = (
    (LINT, re.compile(r"lint|format|fmt|style|types?\b|mypy|ruff|clippy|vet\b", re.IGNORECASE)),
    (TEST, re.compile(r"test|spec\b|check", re.IGNORECASE)),
    (BUILD, re.compile(r"build|compile|package|dist\b", re.IGNORECASE)),
)


class Sight(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a runner saw of the end of an attempt."""

    stage: str = STEPS
    step: str = ""
    exit_code: int | None = None
    signal: str | None = None
    stopped: str = ""  # time or processes, if the runner ended it for having exceeded that limit
    summary: str = ""  # its last line


class Judgement(msgspec.Struct, frozen=True):
    """The class of a failure, how sure that is, and why, in a sentence."""

    kind: str
    confidence: float
    explanation: str


Fits = Callable[[Sight], bool]
# In this order: whether it fits, the class, how sure that is, and what is said of it.
TABLE: tuple[tuple[Fits, str, float, str], ...] = (
    (lambda sight: sight.stopped == "time", TIMEOUT, 1.0, "{step} took longer than it may"),
    (lambda sight: sight.stopped == "processes", STEP, 1.0, "{step} had more processes than it may: {summary}"),
    (lambda sight: sight.stage == CHECKOUT, INFRA, 0.9, "the files could not be checked out: {summary}"),
    (lambda sight: sight.stage == UPLOAD, INFRA, 0.8, "what it made could not be kept: {summary}"),
    (lambda sight: sight.stage == START, INFRA, 0.9, "{step} could not be started: {summary}"),
    (lambda sight: sight.stage == ARTIFACTS, STEP, 1.0, "{summary}"),
    (
        lambda sight: sight.signal == "SIGKILL" or sight.exit_code == KILLED, MEMORY, 0.8,
        "{step} was killed from outside, most often because memory ran out",
    ),
    (lambda sight: sight.exit_code == TIMED_OUT, TIMEOUT, 0.8, "{step} ended with exit code 124, as `timeout` does"),
    (lambda sight: bool(NETWORK.search(sight.summary)), INFRA, 0.7, "{step} failed at the machine: {summary}"),
)  # fmt: skip


def judge(sight: Sight, job: str, *, known_flaky: bool = False) -> Judgement:
    """Returns the class of a failure.

    Parameters:
        sight: what the runner saw.
        job: the name of the job, which tells builds, tests and lints apart.
        known_flaky: whether every test that failed has failed and passed before for one and the same input.
    """
    step = f"the step '{sight.step}'" if sight.step else "it"
    for fits, kind, confidence, words in TABLE:
        if fits(sight):
            return Judgement(kind, confidence, shorten(words.format(step=step, summary=sight.summary)))
    if known_flaky:
        return Judgement(FLAKY, 0.9, shorten(f"every test that failed is known to be flaky: {sight.summary}"))
    if sight.exit_code is None and sight.signal is None:
        return Judgement(UNKNOWN, 0.3, shorten(f"{step} failed: {sight.summary}"))
    ended = f"exit code {sight.exit_code}" if sight.signal is None else sight.signal
    words = shorten(f"{step} ended with {ended}" + (f": {sight.summary}" if sight.summary else ""))
    for text, confidence in ((job, 0.9), (sight.step, 0.6)):
        for kind, pattern in WORDS:
            if pattern.search(text):
                return Judgement(kind, confidence, words)
    return Judgement(STEP, 0.5, words)


def find_rules(judgement: Judgement, sight: Sight) -> list[str]:
    """Returns the rules of the config by which a failure may be tried again, such as runner, or exit 137."""
    of_class = RULES.get(judgement.kind)
    return [*filter(None, [of_class]), *([] if sight.exit_code is None else [f"exit {sight.exit_code}"])]


def shorten(text: str) -> str:
    """Returns a sentence that fits."""
    line = " ".join(text.split())
    return line if len(line) <= EXPLANATION_MAX else line[: EXPLANATION_MAX - 1] + "…"
