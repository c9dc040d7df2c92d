"""Check and encode the arguments of tasks and runs at submit, so that a wrong one never reaches a worker."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, get_type_hints

import msgspec
from msgspec.structs import asdict

from interlock.client.context import Context
from interlock.kernel.blobs import PREFIX
from interlock.kernel.commands import LeaseGrant
from interlock.kernel.commits import COMMIT, take_value
from interlock.kernel.errors import InterlockError
from interlock.kernel.parameters import NO_ARGUMENTS, Parameter, describe_wrong_argument, list_kinds
from interlock.plugins.repositories.options import read_order

TASK = "task"  # the lifecycle of a task of a workstream
NULL = (b"null", "null")


class Arguments:
    """The parameters of one handler."""

    def __init__(self, name: str, handler: Callable[..., Any], reserved: tuple[str, ...]) -> None:
        """Reads the parameters of a handler; `reserved` are names that none of them may have.

        Raises:
            InterlockError: the handler has parameters that no job could give it.
        """
        self.name = name
        self.signature = inspect.signature(handler)
        hints = read_annotations(name, handler)
        self.context_name = next((name for name, hint in hints.items() if is_context(hint) and name != "return"), None)
        self.names = [name for name in self.signature.parameters if name != self.context_name]
        fields = [self.make_field(name, hints, reserved) for name in self.names]
        self.kind = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)
        try:
            self.decoder = msgspec.json.Decoder(self.kind)
        except TypeError as error:
            raise InterlockError(f"task '{name}': its arguments cannot be kept as JSON: {error}") from None

    def make_field(self, name: str, hints: dict[str, Any], reserved: tuple[str, ...]) -> Any:
        """Makes the field that checks a parameter.

        Raises:
            InterlockError: one that cannot be given later.
        """
        parameter = self.signature.parameters[name]
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InterlockError(f"task '{self.name}': '{parameter}' must be a plain parameter with a name of its own")
        if name in reserved:
            names = ", ".join(reserved)
            raise InterlockError(f"task '{self.name}': parameter '{name}' must have another name; submit uses {names}")
        if parameter.default is parameter.empty:
            return name, hints.get(name, Any)

        def default() -> Any:
            return parameter.default

        return name, hints.get(name, Any), msgspec.field(default_factory=default)

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Encodes the arguments of a submit as JSON.

        Raises:
            InterlockError: an argument is wrong; the text names it.
        """
        try:
            values = {**self.name_arguments(args, kwargs), **kwargs} if args else kwargs
            try:
                text = msgspec.json.encode(values)
            except (TypeError, UnicodeError):
                text = encode_arguments(values)  # it names the one that cannot be encoded
            self.decoder.decode(text)
        except (msgspec.MsgspecError, TypeError, UnicodeError) as error:
            why = describe_wrong_argument(str(error))
            raise InterlockError(f"task '{self.name}': {why}; it takes {self.describe()}") from None
        return text.decode()

    def check_some(self, values: Mapping[str, Any]) -> None:
        """Checks arguments that the handler gets beside others.

        Raises:
            InterlockError: the text names the wrong one.
        """
        fields = {field.name: field.type for field in msgspec.structs.fields(self.kind)}
        for name, value in values.items():
            try:
                msgspec.json.decode(msgspec.json.encode(value), type=fields.get(name, Any))
            except (msgspec.MsgspecError, TypeError, UnicodeError) as error:
                why = describe_wrong_argument(f"{str(error).partition(' - at ')[0]} - at `$.{name}`")
                raise InterlockError(f"{why}; it takes {self.describe()}") from None

    def name_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns positional arguments by name.

        Raises:
            InterlockError: one too many.
        """
        if len(args) > len(self.names):
            raise InterlockError(f"task '{self.name}' takes {len(self.names)} arguments, and {len(args)} were given")
        named = dict(zip(self.names, args, strict=False))
        twice = [name for name in named if name in kwargs]
        if twice:
            raise InterlockError(f"task '{self.name}': argument '{twice[0]}' is given twice")
        return named

    def decode_input(self, text: bytes | str) -> msgspec.Struct:
        """Returns the arguments of a job that is no step; null means none.

        Raises:
            msgspec.MsgspecError: they do not fit the handler.
        """
        return self.decoder.decode(NO_ARGUMENTS if text in NULL else text)

    def decode(
        self, grant: LeaseGrant, context: Context | None = None, read_value: Callable[[str], str] = str
    ) -> dict[str, Any]:
        """Returns what the handler is called with: its arguments, and the context if it takes one.

        A step takes those arguments of its run, and outputs of earlier steps, that its parameters name, and a task of a
        workstream those of the workstream. A parameter of another job that is called like something that the job needs,
        and was not given, is what that came to.
        `read_value` returns the text of a value that is kept elsewhere.

        Raises:
            msgspec.MsgspecError: the arguments do not fit the handler.
        """
        own = read_value(grant.input) if grant.input.startswith(PREFIX) else grant.input
        is_alone = grant.outputs is None and not grant.needed and grant.lifecycle != TASK
        text = own if is_alone else self.merge_inputs(grant, own, read_value)
        arguments = asdict(self.decoder.decode(NO_ARGUMENTS if text in NULL else text))
        if self.context_name:
            arguments[self.context_name] = context
        return arguments

    def merge_inputs(self, grant: LeaseGrant, text: str, read_value: Callable[[str], str]) -> bytes | str:
        """Returns the arguments of a job together with what it gets from others, as far as its parameters name it."""
        if grant.outputs is not None:
            values = msgspec.json.decode(text, type=dict[str, msgspec.Raw] | None) or {}
            outputs = {name: output for name, output in grant.outputs if name in self.names}
            values |= {name: decode_output(grant, read_value(output)) for name, output in outputs.items()}
            return msgspec.json.encode({name: values[name] for name in self.names if name in values})
        needed = {name: output for name, output in grant.needed if name in self.names}
        if not needed and grant.lifecycle != TASK:
            return text
        given = msgspec.json.decode(text, type=dict[str, msgspec.Raw] | None) or {}
        if grant.lifecycle == TASK:
            given = {name: value for name, value in given.items() if name in self.names}
        values = {name: decode_output(grant, read_value(output)) for name, output in needed.items()}
        return msgspec.json.encode({**values, **given})

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters as the database keeps them."""
        fields = {field.name: field for field in msgspec.structs.fields(self.kind)}
        return tuple(
            Parameter(name, list_kinds(fields[name].type), fields[name].required, str(self.signature.parameters[name]))
            for name in self.names
        )

    def describe(self) -> str:
        return ", ".join(str(self.signature.parameters[name]) for name in self.names) or "no arguments"


def decode_output(grant: LeaseGrant, text: str) -> Any:
    """Returns what a parameter gets of an output: in a repository what the handler returned, without its wrapping."""
    if COMMIT not in text or read_order(grant.options) is None:
        return msgspec.Raw(text.encode())
    return take_value(msgspec.json.decode(text))


def is_context(hint: Any) -> bool:
    """Whether a type hint asks for the context of the job."""
    return isinstance(hint, type) and Context in hint.__mro__


def read_annotations(name: str, handler: Callable[..., Any]) -> dict[str, Any]:
    """Returns the types of a handler's parameters.

    Raises:
        InterlockError: one that is not known where it stands.
    """
    try:
        return get_type_hints(handler)
    except (NameError, TypeError, SyntaxError) as error:
        raise InterlockError(f"task '{name}': its annotations cannot be read: {error}") from None


def encode_arguments(values: Mapping[str, Any]) -> bytes:
    """Encodes arguments as JSON.

    Raises:
        TypeError: the text names the one that cannot be encoded.
    """
    try:
        return msgspec.json.encode(values)
    except (TypeError, UnicodeError) as whole:
        for name, value in values.items():
            try:
                msgspec.json.encode(value)
            except (TypeError, UnicodeError) as error:
                raise TypeError(f"{error} - at `$.{name}`") from None
        raise TypeError(str(whole)) from None


# Runs: their arguments are what the steps take that no earlier step gives them.


@dataclass(frozen=True)
class StepParameter:
    """A parameter of a step's task; without a name, the step may take anything."""

    step: str
    name: str | None
    kind: Any = None
    required: bool = True
    of_any_step: bool = False  # the task that undoes a step may take the output of any other step


BEFORE = {"step": "before it", "task": "that it needs"}  # how a message calls what gives a part its input


class RunArguments:
    """The arguments of the runs of one workflow, or of one workstream."""

    def __init__(
        self, workflow: str, before: Mapping[str, set[str]], parameters: Sequence[StepParameter],
        reserved: tuple[str, ...], *, kind: str = "workflow", part: str = "step",
    ) -> None:  # fmt: skip
        """Reads the parameters of all steps.

        Parameters:
            before: for each step, the names that parameters have and steps before it.
            kind, part: how messages call the whole and its steps.

        Raises:
            InterlockError: an argument could not be told from an output, or from an option of a submit.
        """
        self.called, self.part = f"{kind} '{workflow}'", part
        self.takes_anything = any(parameter.name is None for parameter in parameters)
        self.parameters = [
            parameter
            for parameter in parameters
            if parameter.name is not None
            and parameter.name not in (before if parameter.of_any_step else before[parameter.step])
        ]
        for parameter in self.parameters:
            step_takes = f"{self.called}: {part} '{parameter.step}' takes '{parameter.name}'"
            if parameter.name in before:
                raise InterlockError(f"{step_takes}, which is a {part}, but none {BEFORE[part]}")
            if parameter.name in reserved:
                names = ", ".join(reserved)
                raise InterlockError(f"{step_takes}, which must have another name; submit uses {names}")

    def encode(self, values: Mapping[str, Any]) -> str:
        """Encodes the arguments of a submit as JSON.

        Raises:
            InterlockError: an argument is wrong; the text names it.
        """
        known = {parameter.name for parameter in self.parameters}
        unknown = [name for name in values if name not in known]
        if unknown and not self.takes_anything:
            raise self.make_error(f"it has no argument '{unknown[0]}'")
        for parameter in self.parameters:
            if parameter.required and parameter.name not in values:
                raise self.make_error(
                    f"argument '{parameter.name}' is missing: {self.part} '{parameter.step}' needs it"
                )
        try:
            text = encode_arguments(values)
            for parameter in self.parameters:
                if parameter.name in values:
                    msgspec.json.decode(
                        text, type=msgspec.defstruct("Argument", [(str(parameter.name), parameter.kind)])
                    )
        except (msgspec.MsgspecError, TypeError, UnicodeError) as error:
            raise self.make_error(describe_wrong_argument(str(error))) from None
        return text.decode()

    def make_error(self, why: str) -> InterlockError:
        names = ", ".join(dict.fromkeys(str(parameter.name) for parameter in self.parameters))
        return InterlockError(f"{self.called}: {why}; it takes {names or 'no arguments'}")


def refuse_numbers_without_value(value: Any) -> None:
    """Raises ValueError for NaN and infinity, which JSON has not: an encoder makes null of them."""
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{value} is no number of JSON")
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        for part in value:
            refuse_numbers_without_value(part)
