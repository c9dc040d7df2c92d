"""The arguments of a run: what its steps take that no earlier step gives them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from interlock.client.arguments import encoded, told
from interlock.kernel.errors import InterlockError


@dataclass(frozen=True)
class Taken:
    """A parameter of a step's task; without a name, it may take anything."""

    step: str
    name: str | None
    kind: Any = None
    required: bool = True
    of_any: bool = False  # what undoes a step may take the output of any other


class RunArguments:
    """Checked when a run is submitted, so that a wrong one never reaches a worker."""

    def __init__(
        self, workflow: str, before: Mapping[str, set[str]], taken: Sequence[Taken], reserved: tuple[str, ...]
    ) -> None:
        self.workflow = workflow
        self.anything = any(one.name is None for one in taken)
        self.taken = [
            one
            for one in taken
            if one.name is not None and one.name not in (before if one.of_any else before[one.step])
        ]
        for one in self.taken:
            if one.name in before:
                raise InterlockError(
                    f"workflow '{workflow}': step '{one.step}' takes '{one.name}', which is a step, but none before it"
                )
            if one.name in reserved:
                names = ", ".join(reserved)
                raise InterlockError(
                    f"workflow '{workflow}': step '{one.step}' takes '{one.name}', which must have another name; "
                    f"submit uses {names}"
                )

    def packed(self, given: Mapping[str, Any]) -> str:
        """The arguments as JSON. Raises InterlockError, which names the one that is wrong."""
        known = {one.name for one in self.taken}
        strange = [name for name in given if name not in known]
        if strange and not self.anything:
            raise self.wrong(f"it has no argument '{strange[0]}'")
        for one in self.taken:
            if one.required and one.name not in given:
                raise self.wrong(f"argument '{one.name}' is missing: step '{one.step}' needs it")
        try:
            text = encoded(given)
            for one in self.taken:
                if one.name in given:
                    fitting(text, one)
        except (msgspec.MsgspecError, TypeError, UnicodeError) as error:
            raise self.wrong(told(str(error))) from None
        return text.decode()

    def wrong(self, why: str) -> InterlockError:
        words = ", ".join(dict.fromkeys(str(one.name) for one in self.taken))
        return InterlockError(f"workflow '{self.workflow}': {why}; it takes {words or 'no arguments'}")


def fitting(text: bytes, taken: Taken) -> None:
    """Raises msgspec.ValidationError for a value that the step's task does not take."""
    one = msgspec.defstruct("Argument", [(str(taken.name), taken.kind)])
    msgspec.json.decode(text, type=one)
