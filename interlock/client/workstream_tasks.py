"""The parts of a workstream, as programs, files and requests say them: tasks with their needs, checks and rules."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from interlock.client.shell import ShellCommand
from interlock.client.tasks import Rules, Task, check_options, parse_list, parse_resources, refuse_unknown_options
from interlock.kernel.errors import InterlockError

TOP = "(workstream)"  # what tasks call their workstream in the command that makes both; no task is called so
NOT_FOR_TASKS = ("process",)  # rules that are of a function, and not of one use of it
RULES = tuple(name for name in Rules.__dataclass_fields__ if name not in NOT_FOR_TASKS)


@dataclass(frozen=True)
class WorkstreamTask:
    """A task, a command, or the name of a task elsewhere, with what it is in a workstream."""

    work: "Task[Any, Any] | ShellCommand | str"
    name: str
    needs: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    critical: bool = True
    checks: tuple[Any, ...] = ()
    rules: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether it says nothing that only a task of a workstream can say."""
        return not (self.needs or self.arguments or self.checks) and self.critical


def task(
    work: "Task[Any, Any] | str", *, name: str | None = None, needs: Iterable[Any] = (),
    arguments: Mapping[str, Any] | None = None, critical: bool = True, checks: Iterable[Any] = (), **rules: Any,
) -> WorkstreamTask:  # fmt: skip
    """A task of a workstream that says more than its function does; nothing is sent.

    Parameters:
        name: its name in the workstream; that of its function by default.
        needs: what must be completed first: tasks, or their names. A parameter of the function with the name of a need
            is what that came to.
        arguments: arguments of its own; others are those of the workstream.
        critical: whether the workstream fails with it.
        checks: what must succeed before it counts: tasks, their names, `interlock.shell(…)`, `interlock.approval(…)`.
        rules: those of a task, in place of what its function says: `attempts`, `timeout`, `capabilities` and so on.

    Raises:
        InterlockError: one of them is not allowed; the text names it.
    """
    if not isinstance(work, Task | str):
        raise InterlockError(f"{work!r} is no task; allowed is a task, or the name of one")
    own = work if isinstance(work, str) else work.name
    return make_part(
        work, own if name is None else name, needs=needs, arguments=arguments, critical=critical, checks=checks,
        rules=check_rules(rules),
    )  # fmt: skip


def check_rules(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the rules of one use of a task. Raises InterlockError."""
    refuse_unknown_options("interlock.task", rules, RULES)
    given = dict(rules)
    if "resources" in given:
        given["resources"] = parse_resources(given["resources"])
    check_options(given)
    return given


def make_part(
    work: Any, name: str, *, needs: Iterable[Any], arguments: Mapping[str, Any] | None, critical: bool,
    checks: Iterable[Any], rules: Mapping[str, Any] | None = None,
) -> WorkstreamTask:  # fmt: skip
    """Makes a part of a workstream. Raises InterlockError for what is of a wrong type."""
    if not isinstance(name, str) or name in ("", TOP):
        raise InterlockError(f"name = {name!r} is not allowed; allowed is any other text")
    if not isinstance(critical, bool):
        raise InterlockError(f"critical = {critical!r} is not allowed; allowed are True and False")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InterlockError(f"arguments = {arguments!r} is not allowed; allowed is a mapping of names to values")
    return WorkstreamTask(
        work, name, parse_needs(needs), dict(arguments or {}), critical, parse_list("checks", checks), dict(rules or {})
    )


def parse_needs(needs: Iterable[Any]) -> tuple[str, ...]:
    """Returns the names of tasks that are given as tasks or by name. Raises InterlockError for anything else."""
    names = [need if isinstance(need, str) else getattr(need, "name", None) for need in parse_list("needs", needs)]
    if not all(isinstance(name, str) for name in names):
        raise InterlockError(f"needs = {needs!r} is not allowed; allowed is a list of tasks or of their names")
    return tuple(dict.fromkeys(str(name) for name in names))
