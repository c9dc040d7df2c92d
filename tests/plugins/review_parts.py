"""What the reviews have for the server and for the command line."""

import msgspec
import typer

from interlock.server.operations import Asked, Operation
from tests.plugins.reviews import GiveReview

group = typer.Typer(name="review", help="Reviews of what jobs came to.", no_args_is_help=True)


class Given(msgspec.Struct):
    """The body of a request: what the reviewer says."""

    verdict: str


async def give(asked: Asked) -> dict[str, str]:
    command = GiveReview(unit=await asked.unit("review"), verdict=asked.body.verdict, actor=asked.caller.name)
    return {"state": await asked.send(command)}


ROUTES = (
    Operation(
        method="POST", path="/v1/reviews/{id}", scope="approve", summary="Give a review", call=give, body=Given,
        answer=dict[str, str],
    ),
)  # fmt: skip


@group.command("who")
def who() -> None:
    """Say who reviews."""
    typer.echo("ann")
