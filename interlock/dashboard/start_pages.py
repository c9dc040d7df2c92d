"""Forms that start a job or a run: one field per stored parameter, with its error beside it.

A task's parameters are stored with the kinds of JSON that each takes, and as its program writes them; from that text
come the values that may be chosen and the default. A workflow takes what the tasks of its steps take and no step gives.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from interlock.dashboard.pages import PageRequest
from interlock.kernel.errors import Unknown
from interlock.server.errors import ApiError

PREFIX = "arg."  # of the fields that are arguments
INPUT = "input"  # the field that holds all arguments as JSON, instead of fields
JSON_KINDS = ("any", "list", "object")
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,30})")
DIGITS_MAX = 40  # of a number
CHOICES_MAX = 100
STARTED_AGAIN = ("job", "workflow_run")  # lifecycles whose ended work can be started with other input
MISSING = "is missing"


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the form: a parameter, and how its value is typed."""

    name: str
    kinds: tuple[str, ...] = ("any",)
    required: bool = True
    choices: tuple[str, ...] = ()  # as JSON
    default: str | None = None  # as its program writes it
    text: str = ""  # the parameter as its program writes it

    @property
    def id(self) -> str:
        return f"{PREFIX}{self.name}"

    @property
    def is_json(self) -> bool:
        """Whether its value is typed as JSON."""
        return any(kind in JSON_KINDS for kind in self.kinds)

    @property
    def options(self) -> tuple[str, ...]:
        """What may be chosen; empty if anything may be typed."""
        if self.choices:
            return self.choices
        return ("true", "false") if set(self.kinds) - {"null"} == {"boolean"} else ()

    @property
    def hint(self) -> str:
        """What may be typed, and what an empty field means."""
        kinds = " or ".join(kind for kind in self.kinds if kind != "null")
        words = "one of these" if self.options else f"{kinds}{', as JSON' if self.is_json else ''}"
        if self.required:
            return f"{words}; {'empty is null' if 'null' in self.kinds else 'required'}"
        return f"{words}; empty is {self.default or 'its default'}"


# Fields of parameters.


def make_field(parameter: Mapping[str, Any]) -> Field:
    """Returns the field of a stored parameter."""
    text = parameter.get("text") or ""
    choices, default = read_signature(text)
    return Field(
        name=parameter["name"], kinds=tuple(parameter["kinds"]), required=parameter["required"], choices=choices,
        default=default, text=text,
    )  # fmt: skip


def read_signature(text: str) -> tuple[tuple[str, ...], str | None]:
    """Returns the values that a parameter may have, as JSON, and its default, as far as its text says them."""
    try:
        (function,) = ast.parse(f"def f(*, {text}): ...").body
        arguments = function.args  # type: ignore[attr-defined]
        (argument,) = arguments.kwonlyargs
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return (), None
    (default,) = arguments.kw_defaults
    return read_choices(argument.annotation), None if default is None else ast.unparse(default)


def read_choices(annotation: ast.expr | None) -> tuple[str, ...]:
    """Returns the values of a `Literal`, also of one that may be None, as JSON; none for another annotation."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        sides = [side for side in (annotation.left, annotation.right) if ast.unparse(side) != "None"]
        return read_choices(sides[0]) if len(sides) == 1 else ()
    if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.value).rpartition(".")[2] != "Literal":
        return ()
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    if len(parts) > CHOICES_MAX or not all(isinstance(part, ast.Constant) for part in parts):
        return ()
    values = [part.value for part in parts if isinstance(part, ast.Constant)]
    if not all(isinstance(value, (str, int, bool)) for value in values):
        return ()
    return tuple(msgspec.json.encode(value).decode() for value in values)


def list_run_fields(
    steps: Sequence[Mapping[str, Any]], tasks: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Field], bool]:
    """Returns what a run of a workflow takes, and whether it may take more than that."""
    given = {step["name"] for step in steps}
    fields: dict[str, Field] = {}
    is_open = False
    for step in steps:
        task = tasks.get(step["task"])
        if task is None or task["parameters"] is None or step["when"]:
            is_open = True
        for parameter in (task["parameters"] or ()) if task else ():
            field = make_field(parameter)
            known = fields.get(field.name)
            if field.name not in given and (known is None or (field.required and not known.required)):
                fields[field.name] = field
    return list(fields.values()), is_open


# Values of fields.


def parse_field(field: Field, typed: str) -> Any:
    """Returns what was typed into a field, UNSET if nothing was.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    text = typed if "text" in field.kinds else typed.strip()
    if not text:
        if not field.required:
            return msgspec.UNSET
        if "null" in field.kinds:
            return None
        raise ApiError(400, MISSING)
    if field.options:
        if text not in field.options:
            raise ApiError(400, f"{text[:40]!r} is not allowed; allowed are {', '.join(field.options)}")
        return msgspec.json.decode(text)
    return parse_value(field, text)


def parse_value(field: Field, text: str) -> Any:
    """Returns a value of one of the kinds that a field takes; text only if it is nothing else.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    kinds, plain = field.kinds, text.strip()
    if "integer" in kinds and INTEGER.fullmatch(plain):
        return int(plain)
    if "number" in kinds and len(plain) <= DIGITS_MAX and NUMBER.fullmatch(plain):
        return msgspec.json.decode(plain)
    if "boolean" in kinds and plain in ("true", "false"):
        return plain == "true"
    why = ""
    if field.is_json:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            why = f", and this is no JSON: {error}"
        else:
            if "any" in kinds or find_kind(value) in kinds:
                return value
    if "text" in kinds:
        return text
    allowed = " or ".join(kind for kind in kinds if kind != "null")
    raise ApiError(400, f"{text[:40]!r} is not allowed; allowed is {'JSON' if allowed == 'any' else allowed}{why}")


def find_kind(value: Any) -> str:
    """Returns the kind of JSON that a value is."""
    if isinstance(value, bool):
        return "boolean"
    kinds = {int: "integer", float: "number", str: "text", list: "list", dict: "object"}
    return kinds.get(type(value), "null")


def check_fields(fields: Sequence[Field], typed: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the arguments that were typed, and what is wrong, by the name of the parameter."""
    arguments, wrong = dict[str, Any](), dict[str, str]()
    for field in fields:
        try:
            value = parse_field(field, typed.get(field.id, ""))
        except ApiError as error:
            wrong[field.name] = str(error)
        else:
            if value is not msgspec.UNSET:
                arguments[field.name] = value
    return arguments, wrong


def parse_input(text: str) -> Any:
    """Returns what was typed as JSON.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ApiError(400, f"the input is no JSON: {error}") from None


def fill_fields(fields: Sequence[Field], given: Any) -> dict[str, str]:
    """Returns how the arguments of an earlier job are typed into the fields."""
    values = given if isinstance(given, dict) else {}
    typed = {}
    for field in fields:
        value = values.get(field.name)
        if field.name in values and value is not None:
            plain = isinstance(value, str) and not field.options and "text" in field.kinds
            typed[field.id] = value if plain else msgspec.json.encode(value).decode()
    return typed


# The pages.


async def show_tasks(request: PageRequest) -> dict[str, Any]:
    """Shows the tasks and workflows that can be started."""
    tasks = (await request.ask("GET", "/v1/tasks"))["tasks"]
    return {"tasks": tasks, "workflows": (await request.ask("GET", "/v1/templates"))["templates"]}


async def show_start(request: PageRequest) -> dict[str, Any]:
    """Shows the form of a task's or a workflow's parameters, filled as the URL says, or as an earlier job was."""
    kind, name = read_target(request.query)
    earlier = await read_earlier(request)
    fields, is_open = await read_fields(request, kind, name, earlier)
    typed = {key: value for key, value in request.pairs if key.startswith(PREFIX)}
    whole = request.query.get(INPUT, "")
    is_sent = "sent" in request.query
    if earlier is not None and not is_sent:
        typed = fill_fields(fields, earlier["input"])
        known = {field.name for field in fields}
        if not isinstance(earlier["input"], dict) or earlier["input"].keys() - known:
            whole = msgspec.json.format(msgspec.json.encode(earlier["input"]), indent=2).decode()
    wrong = check_fields(fields, typed)[1] if is_sent and not whole else {}
    return {
        "kind": kind, "name": name, "fields": fields, "typed": typed, "wrong": wrong, "whole": whole,
        "is_open": is_open, "earlier": earlier, "key": request.query.get("key", ""),
    }  # fmt: skip


def read_target(query: Mapping[str, str]) -> tuple[str, str]:
    """Returns what is to be started: task or workflow, and its name.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    named = [(kind, query[kind]) for kind in ("task", "workflow") if query.get(kind)]
    if len(named) != 1:
        raise ApiError(400, "name a task or a workflow to start: ?task=NAME or ?workflow=NAME")
    return named[0]


async def read_earlier(request: PageRequest) -> dict[str, Any] | None:
    """Returns the job whose input the form begins with, if the URL names one.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    if not request.query.get("again"):
        return None
    job: dict[str, Any] = await request.ask("GET", "/v1/jobs/{id}", parameters={"id": request.query["again"]})
    if job["lifecycle"] not in STARTED_AGAIN:
        raise ApiError(400, f"a {job['lifecycle']} is not started by itself; start what it is part of")
    return job


async def read_fields(
    request: PageRequest, kind: str, name: str, earlier: Mapping[str, Any] | None
) -> tuple[list[Field], bool]:
    """Returns the fields of the form, and whether more arguments than those are taken.

    Raises:
        Unknown: no such task or workflow is stored, and there is no earlier job of it.
    """
    try:
        if kind == "task":
            task = await request.ask("GET", "/v1/tasks/{name}", parameters={"name": name})
            parameters = task["parameters"]
            return [make_field(parameter) for parameter in parameters or ()], parameters is None
        template = await request.ask("GET", "/v1/templates/{name}", parameters={"name": name})
    except Unknown:
        if earlier is None:
            raise
        return [], True
    tasks = {task["name"]: task for task in (await request.ask("GET", "/v1/tasks"))["tasks"]}
    return list_run_fields(template["steps"], tasks)


async def start(request: PageRequest, form: Mapping[str, str]) -> str:
    """Starts a job or a run with what was typed, once per form. Returns the path of its page.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    request.pairs = list(form.items())
    kind, name = read_target(form)
    earlier = await read_earlier(request)
    fields, _ = await read_fields(request, kind, name, earlier)
    whole = form.get(INPUT, "").strip()
    if whole:
        arguments = parse_input(whole)
    else:
        arguments, wrong = check_fields(fields, form)
        if wrong:
            count = "1 field is" if len(wrong) == 1 else f"{len(wrong)} fields are"
            raise ApiError(400, f"{count} wrong: {', '.join(wrong)}")
    body: dict[str, Any] = {"task" if kind == "task" else "template_name": name, "input": arguments}
    if earlier is not None and earlier["outcome"] is not None:
        body["retry_of"] = earlier["id"]
    if kind == "task" and form.get("key"):
        body["key"] = form["key"]
    operation = "/v1/jobs" if kind == "task" else "/v1/runs"
    made = await request.ask("POST", operation, body=body, key=form.get("form_key"))
    return f"/{'jobs' if kind == 'task' else 'runs'}/{made['id']}"
