"""Why a unit is where it is: its state, what may move it on, and which condition keeps it."""

from collections.abc import Mapping

import msgspec

from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.names import shown
from interlock.store.session import Session
from interlock.store.views import view


class Why(msgspec.Struct, frozen=True):
    """The answer, for programs and for people."""

    unit: str
    state: str
    reason: str
    text: str


def explain(session: Session, tenant: int, lives: Mapping[str, Lifecycle], unit: int) -> Why:
    """Why a unit is where it is. Raises Unknown."""
    seen = view(session, tenant, unit)
    name, state = shown(seen.unit.lifecycle, unit), seen.unit.state
    return Why(unit=name, state=state, reason=seen.unit.category, text=f"{name} is {state}")
