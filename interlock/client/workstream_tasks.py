"""The parts of a workstream in programs, files and requests: tasks with needs, checks and rules."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from interlock.client.arguments import encode_arguments
from interlock.client.durations import Length, length_us
from interlock.client.shell import ShellCommand
from interlock.client.tasks import Rules, Task, check_options, parse_list, parse_resources, refuse_unknown_options
from interlock.kernel.errors import InterlockError
from interlock.kernel.parameters import describe_wrong_argument

if TYPE_CHECKING:
    from interlock.client.workflows import WorkflowStep

TOP = "(workstream)"  # what tasks call their workstream in the command that makes both; no task is called so
ITEM = "item"  # the argument that gets the element, where no parameter is known
NOT_FOR_TASKS = ("process", "redact")  # rules that are of a function, and not of one use of it
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
    allow_failure: bool = False
    map: Mapping[str, Any] = field(default_factory=dict)  # of a map: what it goes over, and how
    repo: str | None = None
    takes_us: int | None = None  # how long it will take, for the plan

    @property
    def is_plain(self) -> bool:
        """Whether it says nothing that only a task of a workstream can say."""
        others = (self.needs, self.arguments, self.checks, self.allow_failure, self.repo, self.takes_us)
        return not any(others) and self.critical


def task(
    work: "Task[Any, Any] | str", *, name: str | None = None, needs: Iterable[Any] = (),
    arguments: Mapping[str, Any] | None = None, critical: bool = True, allow_failure: bool = False,
    checks: Iterable[Any] = (), repo: str | None = None, takes: Length | None = None, **rules: Any,
) -> WorkstreamTask:  # fmt: skip
    """A task of a workstream that says more than its function does; nothing is sent.

    Parameters:
        name: its name in the workstream; that of its function by default.
        needs: what must be completed first: tasks, or their names. A parameter of the function with the name of a need
            is what that came to.
        arguments: arguments of its own; others are those of the workstream.
        critical: whether the workstream fails with it.
        allow_failure: after its last attempt it counts as completed, with the output `{"failed": …}`.
        checks: what must succeed before it counts: tasks, their names, `interlock.shell(…)`, `interlock.approval(…)`.
        repo: the repository that it works on, if it is not the workstream's; "" is none.
        takes: how long it will take, for the plan and the estimate of the end; nothing else heeds it.
        rules: those of a task, in place of what its function says: `attempts`, `timeout`, `capabilities` and so on.

    Raises:
        InterlockError: one of them is not allowed; the text names it.
    """
    if isinstance(work, WorkstreamTask) or hasattr(work, "in_workstream"):
        called = getattr(work, "name", "")
        raise InterlockError(f"'{called}' says what it is in the workstream already; give it its options there")
    if not isinstance(work, Task | str):
        raise InterlockError(f"{work!r} is no task; allowed is a task, or the name of one")
    own = work if isinstance(work, str) else work.name
    return make_part(
        work, own if name is None else name, needs=needs, arguments=arguments, critical=critical, checks=checks,
        rules=check_rules(rules), allow_failure=allow_failure, repo=repo, takes=takes,
    )  # fmt: skip


def map(  # noqa: A001
    work: "Task[Any, Any] | str | WorkflowStep", *, over: str, argument: str | None = None, at_once: int | None = None,
    **options: Any,
) -> WorkstreamTask:  # fmt: skip
    """A task that is done once for each element of a list, which is known when its needs are met; nothing is sent.

    The tasks are called `resize[0]`, `resize[1]` and so on. What needs the map gets their outputs as a list, in order.

    Parameters:
        work: a task, the name of one, or `interlock.shell(…)`.
        over: the list: a task that it needs, with a path into its output, as in `fetch.images`.
        argument: the parameter that gets the element; by default the first one.
        at_once: how many of the tasks run at a time.
        options: those of `interlock.task`.

    Raises:
        InterlockError: one of them is not allowed; the text names it.
    """
    part = getattr(work, "in_workstream", None)
    if part is not None and options:
        raise InterlockError(f"map has no option '{next(iter(options))}' here; interlock.shell(…) takes it")
    return add_map(part or task(work, **options), over, argument, at_once)  # type: ignore[arg-type]


def add_map(part: WorkstreamTask, over: str, argument: str | None, at_once: int | None) -> WorkstreamTask:
    """Makes a map of a task.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if not isinstance(over, str) or not over:
        raise InterlockError(f"over = {over!r} is not allowed; allowed is a task and a path, as in fetch.images")
    if argument is not None and not isinstance(argument, str):
        raise InterlockError(f"argument = {argument!r} is not allowed; allowed is the name of a parameter")
    if at_once is not None and (not isinstance(at_once, int) or isinstance(at_once, bool) or at_once < 1):
        raise InterlockError(f"at_once = {at_once!r} is not allowed; allowed is a whole number from 1 on")
    needs = tuple(dict.fromkeys((*part.needs, over.partition(".")[0])))
    if argument in needs:
        raise InterlockError(f"map '{part.name}': argument = {argument!r} is the name of a need, and gets its output")
    free = [name for name in get_parameters(part.work) if name not in part.arguments and name not in needs]
    if isinstance(part.work, Task) and not (argument in free if argument else free):
        missing = f"no '{argument}'" if argument else "nothing for the element"
        raise InterlockError(
            f"map '{part.name}': its task takes {missing}, beside its own arguments and what it needs; it takes "
            f"{part.work.arguments.describe()}"
        )
    own = {"over": over, "argument": argument or (free[0] if free else ITEM)}
    return replace(part, needs=needs, map={**own, **({} if at_once is None else {"at_once": at_once})})


def get_parameters(work: Any) -> list[str]:
    """Returns the parameters of a task, as far as they are known here."""
    return work.arguments.names if isinstance(work, Task) else []


def check_rules(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the rules of one use of a task.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    refuse_unknown_options("interlock.task", rules, RULES)
    given = dict(rules)
    if "resources" in given:
        given["resources"] = parse_resources(given["resources"])
    check_options(given)
    return given


def make_part(
    work: Any, name: str, *, needs: Iterable[Any], arguments: Mapping[str, Any] | None, critical: bool,
    checks: Iterable[Any], rules: Mapping[str, Any] | None = None, allow_failure: bool = False,
    repo: str | None = None, takes: Length | None = None,
) -> WorkstreamTask:  # fmt: skip
    """Makes a part of a workstream.

    Raises:
        InterlockError: it is of a wrong type.
    """
    if not isinstance(name, str) or name in ("", TOP):
        raise InterlockError(f"name = {name!r} is not allowed; allowed is any other text")
    for word, flag in (("critical", critical), ("allow_failure", allow_failure)):
        if not isinstance(flag, bool):
            raise InterlockError(f"{word} = {flag!r} is not allowed; allowed are True and False")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InterlockError(f"arguments = {arguments!r} is not allowed; allowed is a mapping of names to values")
    check_own_arguments(work, name, arguments or {})
    return WorkstreamTask(
        work, name, parse_needs(needs), dict(arguments or {}), critical, parse_list("checks", checks),
        dict(rules or {}), allow_failure, repo=repo, takes_us=None if takes is None else length_us("takes", takes),
    )  # fmt: skip


def check_own_arguments(work: Any, name: str, arguments: Mapping[str, Any]) -> None:
    """Raises InterlockError for arguments that are no JSON, or that the function of a task does not take like this."""
    try:
        if isinstance(work, Task):
            work.arguments.check_some(arguments)
        else:
            encode_arguments(arguments)
    except (InterlockError, TypeError) as wrong:
        raise InterlockError(f"task '{name}': {describe_wrong_argument(str(wrong))}") from None


def parse_needs(needs: Iterable[Any]) -> tuple[str, ...]:
    """Returns the names of tasks that are given as tasks or by name.

    Raises:
        InterlockError: anything else.
    """
    names = [need if isinstance(need, str) else getattr(need, "name", None) for need in parse_list("needs", needs)]
    if not all(isinstance(name, str) for name in names):
        raise InterlockError(f"needs = {needs!r} is not allowed; allowed is a list of tasks or of their names")
    return tuple(dict.fromkeys(str(name) for name in names))
