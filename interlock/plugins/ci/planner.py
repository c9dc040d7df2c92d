"""The planner: which jobs a change needs, and why, from values alone.

A job runs if a file that it depends on has changed, if a job runs that it needs, or if a job that runs needs it.
Where that is not known, more runs: everything if it is not known what has changed or if the config has changed, and a
job whose inputs match no file. Where a job may run at all (`on`, `when`) is decided before, and what is not known does
not match there. Every job of the plan and every one that is left out has a reason with the path and the glob.

Nothing here looks at a clock, a file or a repository: equal values have equal plans, and equal plans have equal hashes.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from interlock.kernel.errors import InterlockError
from interlock.kernel.graph import arrange
from interlock.plugins.ci.config import CONFIG_FILE, NOTHING_JOB, CiConfig, CiJob, CiTrigger, to_plain
from interlock.plugins.ci.globs import GlobSet, match_any
from interlock.plugins.ci.matrix import MatrixRow, list_rows, substitute
from interlock.plugins.ci.yaml_nodes import guess, quote

PATHS_SHOWN = 100
REASONS_SHOWN = SHOWN = 20
ASKED_FOR = "somebody asked for it"
BUILD = "build"
DOCS = GlobSet(("docs/**", "doc/**", "**/*.md", "**/*.rst", "**/*.adoc", "LICENSE*", "COPYING*", "NOTICE*"))
# What is the plan's own, or is in the fingerprint in another form.
NOT_IN_SPEC = ("needs", "matrix", "inputs", "when", "env", "allow_failure", "reuse")


class PlanInput(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a plan depends on."""

    config: CiConfig
    source: str = "config"  # or discovered
    config_file: str = CONFIG_FILE
    head: str = ""  # the id of the tree that is checked
    base: str = ""  # the id of the commit that it is compared with
    changed: tuple[str, ...] | None = None  # paths that differ; None if that is not known
    unknown_because: str = ""  # why it is not known what has changed
    tree: Mapping[str, str] = {}  # the mode and the id of each file by its path
    event: str = "manual"
    branch: str | None = None  # of a pull request, its target
    tag: str | None = None
    only: tuple[str, ...] = ()  # jobs that are wanted, by name, with those that they need; empty: what a change needs
    platform: str = ""  # operating system, architecture and executor


class PlanNeed(msgspec.Struct, frozen=True):
    """A job that must come before, and what of it is awaited: its success, or its end if it is allowed to fail."""

    job: str
    on: str


class PlannedCiJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a plan."""

    name: str
    reason: str
    required: bool
    needs: tuple[PlanNeed, ...] = ()
    spec: dict[str, Any] = {}
    fingerprint: str = ""
    not_reused: str = ""  # why an earlier result does not count; empty if one may


class SkippedCiJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is left out."""

    name: str
    reason: str


class CiPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a run will do, and why."""

    version: int = 1
    source: str
    head: str
    base: str
    event: str
    branch: str | None
    platform: str = ""
    changed: int | None  # how many paths; None if that is not known
    paths: tuple[str, ...]  # the first of them
    run: dict[str, Any]
    jobs: tuple[PlannedCiJob, ...]
    skipped: tuple[SkippedCiJob, ...]
    hash: str = ""


def plan_jobs(given: PlanInput) -> CiPlan:
    """Returns the plan for a change."""
    jobs = given.config.jobs
    names = list(jobs)
    places = {name: place for place, name in enumerate(names)}
    order = [names[place] for place in arrange([[places[need] for need in jobs[name].needs] for name in names])]
    forbidden = find_forbidden(given, order)
    matched = match_inputs(given)
    wanted = find_wanted(given, forbidden)
    reasons = wanted or find_affected(given, [name for name in order if name not in forbidden], matched)
    add_needed(jobs, order, reasons)
    planned = make_planned_jobs(given, [name for name in order if name in reasons], reasons, matched)
    planned = leave_out_others(given, planned)
    skipped = [
        SkippedCiJob(name=name, reason=forbidden.get(name) or explain_skip(given, name))
        for name in names
        if name not in reasons
    ]
    if not planned:
        words = "; ".join(f"{skip.name}: {skip.reason}" for skip in skipped[:REASONS_SHOWN])
        more = f"; and {len(skipped) - REASONS_SHOWN} more" if len(skipped) > REASONS_SHOWN else ""
        planned = [PlannedCiJob(name=NOTHING_JOB, reason=f"every job is left out: {words}{more}", required=True)]
    paths = sorted(given.changed or ())
    plan = CiPlan(
        source=given.source, head=given.head, base=given.base, event=given.event, branch=given.branch,
        platform=given.platform,
        changed=None if given.changed is None else len(paths), paths=tuple(paths[:PATHS_SHOWN]),
        run=to_plain(given.config.run), jobs=tuple(planned), skipped=tuple(skipped),
    )  # fmt: skip
    return msgspec.structs.replace(plan, hash=digest(plan))


def digest(value: Any) -> str:
    """Returns the SHA-256 of a value as JSON with sorted keys."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


# Where a job may run at all.


def find_forbidden(given: PlanInput, order: Sequence[str]) -> dict[str, str]:
    """Returns the jobs that may not run here, each with the reason."""
    whole = explain_event(given)
    forbidden: dict[str, str] = {}
    for name in order:
        job = given.config.jobs[name]
        need = next((need for need in job.needs if need in forbidden), None)
        if reason := whole or explain_when(given, job) or (f"it needs '{need}', which is left out" if need else ""):
            forbidden[name] = reason
    return forbidden


def explain_event(given: PlanInput) -> str:
    """Returns why what happened starts no run; empty if it does. What a person starts always does."""
    if given.event == "manual":
        return ""
    on = given.config.on
    if on is None:
        return "'on' names no schedule" if given.event == "schedule" else ""
    if given.event == "schedule":
        return "" if on.schedule else "'on' names no schedule"
    trigger: CiTrigger | None = getattr(on, given.event)
    if trigger is None:
        return f"'on' does not name {given.event}"
    if not trigger.branches and not trigger.tags:
        return ""
    if given.tag is not None:
        return "" if trigger.tags and match_any(trigger.tags, given.tag) else f"the tag '{given.tag}' starts no run"
    if given.branch is not None and trigger.branches and match_any(trigger.branches, given.branch):
        return ""
    return f"the branch {name_branch(given)} matches none of {list_words(trigger.branches)}"


def explain_when(given: PlanInput, job: CiJob) -> str:
    """Returns why a job may not run here; empty if it may."""
    when = job.when
    if when.event and given.event not in when.event:
        return f"when.event is {list_words(when.event)}, and this is {given.event}"
    if when.branch and not (given.branch is not None and match_any(when.branch, given.branch)):
        return f"when.branch is {list_words(when.branch)}, and this is {name_branch(given)}"
    if when.tag and not (given.tag is not None and match_any(when.tag, given.tag)):
        tag = "no tag" if given.tag is None else f"'{given.tag}'"
        return f"when.tag is {list_words(when.tag)}, and this is {tag}"
    return ""


def name_branch(given: PlanInput) -> str:
    """Names a branch, or says that there is none."""
    return "no branch" if given.branch is None else f"'{given.branch}'"


def list_words(words: Iterable[str]) -> str:
    """Returns words as a sentence lists them."""
    return ", ".join(words) or "none"


# What somebody wants.


def find_wanted(given: PlanInput, forbidden: Mapping[str, str]) -> dict[str, str]:
    """Returns the jobs that somebody wants, by their names in the config.

    Raises:
        InterlockError: there is none.
    """
    reasons: dict[str, str] = {}
    for wanted in given.only:
        name = wanted.partition(":")[0]
        known = [] if name not in given.config.jobs else list_rows(given.config.jobs[name].matrix)
        names = {name, *(name_job(name, row) for row in known)} if known else set()
        if wanted not in names:
            words = list(names or given.config.jobs)
            raise InterlockError(
                f"there is no job {quote(wanted)}{guess(wanted, words)}; there are {list_words(sorted(words)[:SHOWN])}"
            )
        if name in forbidden:
            raise InterlockError(f"the job '{name}' may not run here: {forbidden[name]}")
        reasons[name] = ASKED_FOR
    return reasons


def leave_out_others(given: PlanInput, planned: list[PlannedCiJob]) -> list[PlannedCiJob]:
    """Returns the jobs of a plan without those of a matrix that nobody wants; what is needed stays whole."""
    wanted = {*given.only, *(need.job for job in planned for need in job.needs)}
    return [job for job in planned if job.reason != ASKED_FOR or wanted & {job.name.partition(":")[0], job.name}]


# What a change needs.


def match_inputs(given: PlanInput) -> dict[str, list[str]]:
    """Returns the files of the tree and the changed paths that each glob of the config matches, sorted."""
    globs = GlobSet(glob for job in given.config.jobs.values() for glob in job.inputs)
    return globs.match_all(sorted({*given.tree, *(given.changed or ())})) if globs.globs else {}


def find_affected(given: PlanInput, order: Sequence[str], matched: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Returns the jobs that a change affects, each with the reason."""
    jobs = given.config.jobs
    if given.changed is None:
        return dict.fromkeys(order, given.unknown_because or "it is not known what has changed")
    if not given.changed:
        return {}
    if given.config_file in given.changed:
        return dict.fromkeys(order, f"the config '{given.config_file}' has changed")
    changed = set(given.changed)
    first = min(changed)
    first_matches = {
        glob: path
        for glob, paths in matched.items()
        if (path := next((path for path in paths if path in changed), None))
    }
    docs_only = given.source == "discovered" and all(DOCS.match(path) for path in changed)
    reasons: dict[str, str] = {}
    for name in order:
        job = jobs[name]
        hits = sorted((first_matches[glob], glob) for glob in job.inputs if glob in first_matches)
        need = next((need for need in job.needs if need in reasons), None)
        if docs_only:
            if name == BUILD:
                reasons[name] = f"'{first}' has changed; only docs have, so nothing but the build runs"
        elif hits:
            reasons[name] = f"'{hits[0][0]}' matches '{hits[0][1]}'"
        elif not job.inputs:
            reasons[name] = f"'{first}' has changed, and the job names no inputs"
        elif need is not None:
            reasons[name] = f"the job '{need}' runs, which it needs"
        elif not any(glob in matched for glob in job.inputs):
            reasons[name] = f"no file matches {list_words(job.inputs)}, so it is not known what it depends on"
    return reasons


def add_needed(jobs: Mapping[str, CiJob], order: Sequence[str], reasons: dict[str, str]) -> None:
    """Adds the jobs that are needed by those that run."""
    for name in reversed(order):
        if name in reasons:
            for need in jobs[name].needs:
                reasons.setdefault(need, f"the job '{name}' runs and needs it")


def explain_skip(given: PlanInput, name: str) -> str:
    """Returns why a job that may run is not needed."""
    if given.only:
        return "nobody asked for it, and no job that runs needs it"
    if not given.changed:
        return f"nothing has changed since {given.base[:12] or 'the base'}"
    if given.source == "discovered" and all(DOCS.match(path) for path in given.changed):
        return f"only docs have changed, such as '{min(given.changed)}'"
    return f"no changed path matches {list_words(given.config.jobs[name].inputs)}"


# Jobs as they are run.


def make_planned_jobs(
    given: PlanInput, order: Sequence[str], reasons: Mapping[str, str], matched: Mapping[str, Sequence[str]]
) -> list[PlannedCiJob]:
    """Returns the jobs of a plan, one for each combination of a matrix, each behind those that it needs."""
    planned: dict[str, list[PlannedCiJob]] = {}
    files = {glob: digest_files(given.tree, paths) for glob, paths in matched.items()}
    whole_tree = digest_files(given.tree, sorted(given.tree))
    for name in order:
        job = given.config.jobs[name]
        before = [other for need in job.needs for other in planned[need]]
        inputs = {glob: files.get(glob, "") for glob in job.inputs} if job.inputs else whole_tree
        planned[name] = []
        for row in list_rows(job.matrix):
            spec = make_spec(given.config, name, job, row)
            facts = {
                "spec": spec, "platform": given.platform, "inputs": inputs,
                "needs": sorted(other.fingerprint for other in before),
            }  # fmt: skip
            planned[name].append(
                PlannedCiJob(
                    name=name_job(name, row), reason=reasons[name],
                    required=not (job.allow_failure or row.allow_failure),
                    needs=tuple(PlanNeed(other.name, "success" if other.required else "end") for other in before),
                    spec=spec, fingerprint=digest(facts),
                    not_reused=reasons[name] if reasons[name] == ASKED_FOR else explain_no_reuse(given, job),
                )
            )  # fmt: skip
    return [job for jobs in planned.values() for job in jobs]


def name_job(name: str, row: MatrixRow) -> str:
    """Returns the name of a job of a matrix, as in `test:3.12:linux`."""
    return ":".join((name, *row.values.values()))


def make_spec(config: CiConfig, name: str, job: CiJob, row: MatrixRow) -> dict[str, Any]:
    """Returns what is run: the job with its values in place, and the variables of its commands."""
    spec = {key: value for key, value in to_plain(job).items() if key not in NOT_IN_SPEC}
    values = {**row.values, "job": name_job(name, row)}
    env = {
        **config.env,
        **{variable: substitute(value, values) for variable, value in job.env.items()},
        **row.variables,
    }
    if env:
        spec["env"] = env
    if job.labels:
        spec["labels"] = [substitute(label, values) for label in job.labels]
    for artifact in spec.get("artifacts", ()):
        artifact["name"] = substitute(artifact["name"], values)
    return spec


def digest_files(tree: Mapping[str, str], paths: Iterable[str]) -> str:
    """Returns the SHA-256 of the names, modes and ids of files; paths that are not in the tree are passed over."""
    lines = [f"{path}\0{tree[path]}\n" for path in paths if path in tree]
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def explain_no_reuse(given: PlanInput, job: CiJob) -> str:
    """Returns why an earlier success of a job does not count; empty if it does."""
    if job.reuse != "auto":
        return "" if job.reuse == "always" else "reuse is never"
    if given.event == "schedule":
        return "the run is scheduled"
    for reason, has in (("secrets", job.secrets), ("a gate", job.gate), ("the network", job.network)):
        if has:
            return f"it has {reason}"
    return ""
