"""Tools of an agent: what its contract says of each, and `interlock.tool`, by which people approve its calls."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from interlock.client.durations import Length, length_us
from interlock.client.tasks import Task
from interlock.kernel.errors import InterlockError
from interlock.plugins.agents.contracts import ToolTerms, digest_text

# Where libraries of agents keep what a tool takes.
SCHEMAS = ("params_json_schema", "input_schema", "inputSchema", "parameters_json_schema", "parameters", "json_schema")
FUNCTIONS = ("function", "fn", "func")
SIMPLE = (str, int, float, bool, type(None))


@dataclass(frozen=True)
class Tool:
    """A tool of an agent, made by `interlock.tool`; called like the function that it is, it runs here and now.

    `approval` are the terms on which people are asked about a call; with None nobody is.
    """

    function: Any
    approval: Mapping[str, Any] | None = None
    effect: bool = False
    check: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def tool(
    function: Callable[..., Any], *, approvers: Iterable[str] = (), quorum: int | None = None,
    expires: Length | None = None, not_submitter: bool = False, effect: bool = False,
    check: Callable[..., Any] | None = None,
) -> Tool:  # fmt: skip
    """A tool of which people approve each call in the inbox, before `ctx.tool` makes it; they may change its arguments.

    The terms are those of `ctx.ask`, and belong to the contract of the agent; without any of them, an effect is called
    unasked. With `effect` a call is never repeated in silence, as with `ctx.effect`: `check` gets its arguments, and
    says what a call came to that a lost worker had begun.
    """
    if not callable(function):
        raise InterlockError(f"tool({function!r}) is not allowed; allowed is a function")
    if check is not None and not (effect and callable(check)):
        raise InterlockError(f"tool(…, check={check!r}) is not allowed; allowed is a function, with effect=True")
    is_asked = bool(approvers or quorum or expires or not_submitter) or not effect
    given: dict[str, Any] = {
        "approvers": [approvers] if isinstance(approvers, str) else sorted(approvers),
        "expires_us": None if expires is None else length_us("expires", expires),
        "quorum": quorum, "not_submitter": not_submitter or None,
    }  # fmt: skip
    approval = {name: value for name, value in given.items() if value is not None}
    return Tool(function, approval if is_asked else None, effect, check)


def describe_tool(given: Any) -> ToolTerms:
    """What a contract says of a tool.

    Raises:
        InterlockError: it is none.
    """
    inner, approval = (given.function, given.approval) if isinstance(given, Tool) else (given, None)
    terms = None if approval is None else dict(approval)
    return ToolTerms(find_name(inner), digest_text(encode_schema(find_schema(inner))), terms)


def find_function(given: Any) -> Callable[..., Any] | None:
    """What is called for a tool; None if it is only described, or its library calls it."""
    if isinstance(given, Tool):
        return find_function(given.function)
    candidates = [given, *(getattr(given, name, None) for name in FUNCTIONS)]
    return next((each for each in candidates if callable(each)), None)


def find_name(given: Any) -> str:
    """What a tool is called: a function, an object of a library, or a mapping with a name."""
    if isinstance(given, Mapping):
        name = given.get("name") or (given.get("function") or {}).get("name")
    else:
        name = getattr(given, "name", None) or getattr(given, "__name__", None)
    if not isinstance(name, str) or not name:
        raise InterlockError(f"tools: {given!r:.80} is not allowed; allowed is a function, or a tool with a name")
    return name


def find_schema(given: Any) -> Any:
    """What a tool takes, as its library says it, or else by the signature of its function; without addresses."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, Task):
        given = given.handler
    for name in SCHEMAS:
        if isinstance(schema := getattr(given, name, None), Mapping):
            return {"schema": schema, "about": getattr(given, "description", None) or ""}
    function = next((each for name in FUNCTIONS if callable(each := getattr(given, name, None))), given)
    return {"about": inspect.getdoc(function) or "", "parameters": list_parameters(function)}


def list_parameters(function: Any) -> list[dict[str, Any]]:
    """The parameters of a function in their order: name, type, default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        {"name": each.name, "kind": each.kind.name, "type": describe_type(each), "default": describe_default(each)}
        for each in parameters
    ]


def describe_type(parameter: inspect.Parameter) -> str:
    """Returns the type of a parameter as its source spells it; empty if it has none."""
    given = parameter.annotation
    if given is inspect.Parameter.empty:
        return ""
    return given if isinstance(given, str) else inspect.formatannotation(given)


def describe_default(parameter: inspect.Parameter) -> Any:
    """Returns the default of a parameter as JSON can hold it; empty text if it has none."""
    given = parameter.default
    if given is inspect.Parameter.empty:
        return ""
    return repr(given) if isinstance(given, SIMPLE) else type(given).__name__


def encode_schema(value: Any) -> str:
    """Key-sorted JSON; what is none is told by its type."""
    return msgspec.json.Encoder(order="sorted", enc_hook=lambda other: type(other).__name__).encode(value).decode()
