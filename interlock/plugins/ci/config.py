"""The config of a repository's CI, `.interlock/ci.yaml`, as structs.

A key of the file is a field of a struct, with the reader of its value and what it is for; the reference in the docs is
made of them. `parse_config` reads a file, and says everything that is wrong with it at once.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from interlock.kernel.graph import cycle
from interlock.plugins.ci.matrix import JOBS_MAX, Matrix, MatrixReader, count_rows, list_rows, list_unknown_names
from interlock.plugins.ci.readers import (
    ChoiceReader,
    ConfigKey,
    FlagReader,
    GlobReader,
    LengthReader,
    ListReader,
    NumberReader,
    RecordReader,
    TableReader,
    TextReader,
)
from interlock.plugins.ci.yaml_nodes import Problems, TextPath, YamlNode, YamlText, guess, parse_yaml, quote

CONFIG_FILE = ".interlock/ci.yaml"
EVENTS = ("push", "pull_request", "schedule", "manual")
UNSERVED = ("image", "services", "cache", "group")  # of a job
NOTHING_JOB = "nothing"  # the job of a plan in which everything is skipped
KEEP = "30d"  # of artifacts
PROCESSES = 2_000  # that a step may have at a time
COMMAND_MAX = 65_536  # characters
NAME = TextReader("a name of letters, digits, _, . and -, first a letter", r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
VARIABLE = TextReader("a name of letters, digits and _, not INTERLOCK_…", r"(?!INTERLOCK_)[A-Za-z_][A-Za-z0-9_]{0,99}")
SECRET = TextReader("a name of capitals, digits and _", r"(?!INTERLOCK_)[A-Z_][A-Z0-9_]{0,99}")
WORD = TextReader("a word without spaces", r"\S{1,100}")
COMMAND = TextReader("a shell command", r".*\S.*", COMMAND_MAX)
GLOB = GlobReader()
GLOBS = ListReader(GLOB, "a list of globs")
ONE_OR_MORE_GLOBS = ListReader(GLOB, "", or_single=True)
ENV = TableReader(VARIABLE, TextReader("text"), "a map of variables")


class CiStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command of a job. `steps: [make test]` is short for `steps: [{run: make test}]`."""

    run: Annotated[str, ConfigKey(COMMAND, "What the shell runs.", required=True)]
    name: Annotated[str, ConfigKey(TextReader("text", r".*\S.*", 100), "What it is called in the log.")] = ""
    timeout: Annotated[str, ConfigKey(LengthReader("1s", "24h"), "How long it may take; the job's, if not said.")] = ""


STEPS = ListReader(RecordReader(CiStep, "a step", short="run"), "a list of steps", distinct=False)


class CiArtifact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Files of a job that are kept."""

    name: Annotated[str, ConfigKey(TextReader("a name", r"[A-Za-z0-9{][A-Za-z0-9_.{}-]{0,99}"), "Its name.", True)]
    paths: Annotated[tuple[str, ...], ConfigKey(GLOBS, "Which files.", True)]
    keep: Annotated[str, ConfigKey(LengthReader("1h", "365d"), "How long they are handed out.")] = KEEP


class CiReports(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Files of a job in which tools say what they found."""

    junit: Annotated[tuple[str, ...], ConfigKey(ONE_OR_MORE_GLOBS, "Results of tests as JUnit files.")] = ()


class CiRetries(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often a job is tried again, by what went wrong. A failed command is not, unless its exit code is named."""

    runner: Annotated[int, ConfigKey(NumberReader(0, 10), "After a fault of the machine or the network.")] = 2
    flaky: Annotated[int, ConfigKey(NumberReader(0, 10), "If all tests that failed are known to be flaky.")] = 0
    timeout: Annotated[int, ConfigKey(NumberReader(0, 10), "After a timeout.")] = 0
    exit: Annotated[
        dict[str, int],
        ConfigKey(
            TableReader(
                TextReader("an exit code from 1 to 255", r"[1-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5]"),
                NumberReader(1, 10), "a map of exit codes, such as {137: 1}",
            ),
            "After these exit codes.",
        ),
    ] = {}  # fmt: skip


class CiGate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """People who must agree before a job begins."""

    approvers: Annotated[tuple[str, ...], ConfigKey(ListReader(WORD, "a list of names"), "Who may agree.", True)]
    quorum: Annotated[int, ConfigKey(NumberReader(1, 100), "How many must.")] = 1
    expires: Annotated[str, ConfigKey(LengthReader("1m", "90d"), "After this the gate is closed.")] = "7d"


class CiWhen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a job may run at all. A branch or tag that is not known does not match."""

    branch: Annotated[tuple[str, ...], ConfigKey(ONE_OR_MORE_GLOBS, "Branches, as globs.")] = ()
    tag: Annotated[tuple[str, ...], ConfigKey(ONE_OR_MORE_GLOBS, "Tags, as globs.")] = ()
    event: Annotated[
        tuple[str, ...], ConfigKey(ListReader(ChoiceReader(*EVENTS), "", or_single=True), "What started the run.")
    ] = ()


class CiJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job: commands that run one after another in a checkout of their own."""

    steps: Annotated[tuple[CiStep, ...], ConfigKey(STEPS, "What it runs; a job with a gate may have none.")] = ()
    after: Annotated[tuple[CiStep, ...], ConfigKey(STEPS, "What runs afterwards in any case.")] = ()
    needs: Annotated[tuple[str, ...], ConfigKey(ListReader(NAME, "a list of jobs"), "Jobs that come before.")] = ()
    matrix: Annotated[Matrix | None, ConfigKey(MatrixReader(), "One job for each combination of these values.")] = None
    labels: Annotated[tuple[str, ...], ConfigKey(ListReader(WORD, "a list of labels"), "What its machine has.")] = ()
    inputs: Annotated[tuple[str, ...], ConfigKey(GLOBS, "The files that it depends on; all, if not said.")] = ()
    when: Annotated[CiWhen, ConfigKey(RecordReader(CiWhen, "when"), "Where it may run at all.")] = CiWhen()
    env: Annotated[dict[str, str], ConfigKey(ENV, "Variables of its commands.")] = {}
    secrets: Annotated[
        tuple[str, ...], ConfigKey(ListReader(SECRET, "a list of names"), "Secret variables, by name.")
    ] = ()
    artifacts: Annotated[
        tuple[CiArtifact, ...],
        ConfigKey(ListReader(RecordReader(CiArtifact, "an artifact"), "a list of artifacts"), "Files that are kept."),
    ] = ()
    reports: Annotated[CiReports, ConfigKey(RecordReader(CiReports, "reports"), "Results of tools.")] = CiReports()
    timeout: Annotated[str, ConfigKey(LengthReader("1s", "24h"), "How long it may take.")] = "1h"
    cancel_within: Annotated[
        str, ConfigKey(LengthReader("1s", "1h"), "How long it may take to stop after a cancel.")
    ] = "30s"
    retries: Annotated[CiRetries, ConfigKey(RecordReader(CiRetries, "retries"), "When it is tried again.")] = (
        CiRetries()
    )
    allow_failure: Annotated[bool, ConfigKey(FlagReader(), "Whether the run may succeed without it.")] = False
    gate: Annotated[CiGate | None, ConfigKey(RecordReader(CiGate, "a gate"), "Who must agree before.")] = None
    network: Annotated[bool, ConfigKey(FlagReader(), "Whether it needs the network.")] = False
    processes: Annotated[
        int, ConfigKey(NumberReader(8, 100_000), "How many processes each of its steps may have at a time.")
    ] = PROCESSES
    reuse: Annotated[
        str,
        ConfigKey(
            ChoiceReader("auto", "always", "never"),
            "Whether an earlier success with the same fingerprint counts; auto: not with secrets, gate or network.",
        ),
    ] = "auto"


class CiTrigger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which pushes or pull requests start a run: all, if nothing is said."""

    branches: Annotated[tuple[str, ...], ConfigKey(GLOBS, "Branches, as globs; of a pull request, its target.")] = ()
    tags: Annotated[tuple[str, ...], ConfigKey(GLOBS, "Tags, as globs.")] = ()


class CiSchedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A time at which a run starts."""

    cron: Annotated[str, ConfigKey(TextReader("five fields such as 0 3 * * *", r"\S+( +\S+){4}", 100), "When.", True)]
    timezone: Annotated[str, ConfigKey(TextReader("a time zone such as Europe/Berlin", longest=100), "Where.")] = "UTC"


class CiEvents(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What starts a run."""

    push: Annotated[CiTrigger | None, ConfigKey(RecordReader(CiTrigger, "push"), "Pushes.")] = None
    pull_request: Annotated[CiTrigger | None, ConfigKey(RecordReader(CiTrigger, "pull_request"), "Pull requests.")] = (
        None
    )
    schedule: Annotated[
        tuple[CiSchedule, ...],
        ConfigKey(ListReader(RecordReader(CiSchedule, "a schedule"), "a list of schedules"), "Times."),
    ] = ()


class CiTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What holds for a run as a whole."""

    timeout: Annotated[str, ConfigKey(LengthReader("1s", "7d"), "How long it may take.")] = "6h"
    queue_timeout: Annotated[
        str, ConfigKey(LengthReader("1s", "7d"), "How long it may wait until its first job begins.")
    ] = "1d"
    plan_timeout: Annotated[str, ConfigKey(LengthReader("1s", "1h"), "How long planning may take.")] = "5m"
    supersede: Annotated[
        str, ConfigKey(ChoiceReader("never", "pull_request", "always"), "Which older runs a new one cancels.")
    ] = "pull_request"
    fail_fast: Annotated[bool, ConfigKey(FlagReader(), "Whether the first failure cancels the rest.")] = False


class CiConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The file as a whole."""

    jobs: Annotated[
        dict[str, CiJob],
        ConfigKey(
            TableReader(NAME, RecordReader(CiJob, "a job", unserved=UNSERVED), "a map of jobs", least=1, most=JOBS_MAX),
            "The jobs, by name.", True,
        ),
    ]  # fmt: skip
    version: Annotated[int, ConfigKey(NumberReader(1, 1), "The version of this format.")] = 1
    on: Annotated[
        CiEvents | None, ConfigKey(RecordReader(CiEvents, "on"), "What starts a run; pushes and pull requests.")
    ] = None
    run: Annotated[CiTerms, ConfigKey(RecordReader(CiTerms, "run"), "What holds for a run as a whole.")] = CiTerms()
    env: Annotated[dict[str, str], ConfigKey(ENV, "Variables of all jobs.")] = {}


TOP = RecordReader(CiConfig, "the config")


def parse_config(data: bytes, file: str = CONFIG_FILE) -> CiConfig:
    """Returns the config that a file holds.

    Parameters:
        data: the bytes of the file.
        file: its name in messages.

    Raises:
        ConfigError: everything that is wrong with it, as `file:line:column: what was wrong; what is allowed`.
        InterlockError: PyYAML is not installed.
    """
    problems = Problems(file)
    return read_config(parse_yaml(data, problems), problems)


def read_config(top: YamlNode | None, problems: Problems) -> CiConfig:
    """Returns the config that a tree holds.

    Raises:
        ConfigError: the config has problems; the text lists them.
    """
    if top is None:
        problems.check()  # what is no YAML is not read any further
    if top is None or (isinstance(top, YamlText) and top.absent):
        problems.refuse(YamlNode(line=1, column=1), "the file is empty", "allowed is a map with the key jobs")
        problems.check()
    assert top is not None
    problems.places[()] = top
    config = TOP.read(top, (), problems)
    if config is not None:
        assert isinstance(config, CiConfig)
        check_config(config, problems)
    problems.check()
    assert isinstance(config, CiConfig)
    return config


def check_config(config: CiConfig, problems: Problems) -> None:
    """Adds what is wrong with values that are allowed alone and not together."""
    total = 0
    for name, job in config.jobs.items():
        path: TextPath = ("jobs", name)
        if name == NOTHING_JOB:
            problems.refuse_at(
                path, f"a job cannot be called '{NOTHING_JOB}'", "a plan without work has a job of this name"
            )
        if not job.steps and job.gate is None and not {(*path, "steps"), (*path, "gate")} & problems.places.keys():
            problems.refuse_at(path, f"the job '{name}' has no steps", "allowed are 1 to 100, or a gate")
        check_needs(config.jobs, name, job, problems)
        check_names(config.env, name, job, problems)
        artifacts = [artifact.name for artifact in job.artifacts]
        for place, artifact in enumerate(artifacts):
            if artifact in artifacts[:place]:
                at: TextPath = (*path, "artifacts", place, "name")
                problems.refuse_at(at, f"the artifact {quote(artifact)} is there twice", "a name is used once in a job")
        total += count_rows(job.matrix)
    if total > JOBS_MAX:
        problems.refuse_at(("jobs",), f"with their matrices these are {total:,} jobs", f"allowed are {JOBS_MAX}")
    for place, schedule in enumerate(config.on.schedule if config.on else ()):
        check_schedule(schedule, ("on", "schedule", place), problems)
    if circle := cycle((name, need) for name, job in config.jobs.items() for need in job.needs if need != name):
        words = " needs ".join(f"'{name}'" for name in circle)
        problems.refuse_at(("jobs", circle[0], "needs"), f"{words}: none of them can begin", "needs must not go round")


def check_needs(jobs: Mapping[str, CiJob], name: str, job: CiJob, problems: Problems) -> None:
    """Adds the problem of a need that is no job, or the job itself."""
    for place, need in enumerate(job.needs):
        at = ("jobs", name, "needs", place)
        if need == name:
            problems.refuse_at(at, f"the job '{name}' needs itself", "allowed are other jobs")
        elif ("jobs", need) not in problems.places:
            known = ", ".join(list(jobs)[:20])
            problems.refuse_at(at, f"there is no job {quote(need)}{guess(need, list(jobs))}", f"allowed are {known}")


def check_names(env: Mapping[str, str], name: str, job: CiJob, problems: Problems) -> None:
    """Adds the problem of a `{name}` that is no value of the job's matrix, and of two variables with one name."""
    known = [*(job.matrix.values if job.matrix else ()), "job"]
    is_refused = job.matrix is None and ("jobs", name, "matrix") in problems.places
    for path, text in () if is_refused else list_substituted(job):
        for word in list_unknown_names(text, known):
            wrong = f"there is no value '{{{word}}}'{guess(word, known)}"
            allowed = f"allowed are {', '.join('{' + word + '}' for word in known)}; {{{{{word}}} is the text itself"
            problems.refuse_at(("jobs", name, *path), wrong, allowed)
    for place, secret in enumerate(job.secrets):
        if secret in job.env or secret in env:
            at = ("jobs", name, "secrets", place)
            problems.refuse_at(at, f"'{secret}' is a secret and in env too", "keep one of them")
    for row in list_rows(job.matrix)[:1]:
        for variable in row.variables:
            if variable in job.env or variable in job.secrets or variable in env:
                wrong = f"the variable {variable} is in env or secrets too"
                problems.refuse_at(("jobs", name, "matrix"), wrong, "call the value otherwise")


def list_substituted(job: CiJob) -> Iterator[tuple[TextPath, str]]:
    """Yields the values in which `{name}` stands for a value, with their places: never the text of a command."""
    yield from ((("labels", place), label) for place, label in enumerate(job.labels))
    yield from ((("env", variable), value) for variable, value in job.env.items())
    for place, artifact in enumerate(job.artifacts):
        yield ("artifacts", place, "name"), artifact.name


def check_schedule(schedule: CiSchedule, path: TextPath, problems: Problems) -> None:
    """Adds the problem of a time that never comes, or of a time zone that there is not."""
    try:
        CronSim(schedule.cron, datetime(2024, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        words = f"{quote(schedule.cron)} is no time: {error}"
        problems.refuse_at((*path, "cron"), words, "allowed are five fields such as 0 3 * * *")
    try:
        ZoneInfo(schedule.timezone)
    except (ValueError, OSError, KeyError):  # what is not found is a KeyError
        words = f"there is no time zone {quote(schedule.timezone)}"
        problems.refuse_at((*path, "timezone"), words, "allowed is a name such as Europe/Berlin or UTC")


def to_plain(value: Any) -> Any:
    """Returns a part of a config as maps, lists, texts and numbers, without what is not said."""
    return msgspec.to_builtins(value)
