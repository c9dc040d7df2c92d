"""Format the progress of a workstream for `interlock show` and `interlock watch`."""

from interlock.cli.output import Cell
from interlock.client.durations import format_rounded
from interlock.client.progress import BlockedTask, Progress
from interlock.kernel.texts import make_plain

NAMED_MAX = 8  # tasks of a critical path that are named at its beginning and at its end
BLOCKED_MAX = 5


def list_progress(progress: Progress) -> list[tuple[str, Cell]]:
    """Return the rows of a table; what there is nothing to say of is left out."""
    paused = " (paused)" if progress.paused else ""
    rows: list[tuple[str, Cell]] = [("done", f"{progress.done} of {progress.of}{paused}")]
    if counts := describe_counts(progress):
        rows.append(("now", counts))
    rows += [("blocked", describe_blocked(task)) for task in progress.blocked_tasks[:BLOCKED_MAX]]
    if (more := progress.blocked - BLOCKED_MAX) > 0:
        rows.append(("blocked", f"and {more} more"))
    if progress.critical_path:
        rows.append(("critical path", describe_path(progress.critical_path)))
    if progress.started_at is not None:
        rows.append(("elapsed", format_rounded(round(progress.elapsed_seconds * 1_000_000))))
    if progress.eta is not None:
        rows.append(("eta", f"{progress.eta} ({describe_left(progress)})"))
    return rows


def describe_progress(progress: Progress) -> str:
    """Return the counts, the critical path and the ETA as one line."""
    parts = [f"{progress.done} of {progress.of} done", describe_counts(progress)]
    if progress.paused:
        parts.append("paused")
    if progress.critical_path:
        parts.append(f"critical path {describe_path(progress.critical_path)}")
    if progress.eta is not None:
        parts.append(f"eta {progress.eta} ({describe_left(progress)})")
    return "; ".join(filter(None, parts))


def describe_counts(progress: Progress) -> str:
    """Say how many tasks are running, done, blocked and so on; zeros are left out."""
    counts = {
        f"{progress.running} running": progress.running, f"{progress.checking} at their checks": progress.checking,
        f"{progress.ready} ready": progress.ready, f"{progress.waiting} waiting": progress.waiting,
        f"{progress.blocked} blocked": progress.blocked, f"{progress.failed} failed": progress.failed,
    }  # fmt: skip
    return ", ".join(text for text, count in counts.items() if count)


def describe_blocked(task: BlockedTask) -> str:
    """Return which task is blocked, and by which."""
    by = ", ".join(f"'{name}'" for name in task.by)
    return make_plain(f"'{task.name}' ({task.id}) by {by}")


def describe_path(names: tuple[str, ...]) -> str:
    """Return a path of names; of a long one, its beginning and its end."""
    if len(names) > 2 * NAMED_MAX:
        names = (*names[:NAMED_MAX], f"… {len(names) - 2 * NAMED_MAX} more …", *names[-NAMED_MAX:])
    return make_plain(" → ".join(names))


def describe_left(progress: Progress) -> str:
    """Say in how much time a workstream will have ended."""
    return f"in {format_rounded(round((progress.left_seconds or 0.0) * 1_000_000))}"
