"""The page of schedules: when each is due next, what it made last, and buttons to pause and trigger it."""

from pathlib import Path
from typing import Any

from interlock.dashboard.pages import MACHINERY, Action, PageRequest, WebPage


async def show_schedules(request: PageRequest) -> dict[str, Any]:
    """Lists schedules with their next time."""
    return {"schedules": (await request.ask("GET", "/v1/schedules"))["schedules"]}


PAGES = (
    WebPage(
        path="/schedules", template="schedules.html", call=show_schedules, menu="Schedules", group=MACHINERY,
        icon="clock", folder=Path(__file__).parent / "templates",
        actions=tuple(
            Action(path=f"/schedules/{{name}}/{verb}", operation=f"/v1/schedules/{{name}}/{verb}", page="/schedules")
            for verb in ("pause", "unpause", "trigger")
        ),
    ),
)  # fmt: skip
