"""A request that comes to two engines at the same time is carried out once."""

from typing import Any

import pytest

from interlock.core import submit
from interlock.kernel.commands import Submit, Work
from interlock.lifecycles import shipped
from interlock.plugins import open_engine
from interlock.store.queries.views import Filter, find_matching
from interlock.store.unit_of_work import UnitOfWork
from tests.store.databases import fresh_postgres


@pytest.mark.req("R2-21", "R2-48")
def test_an_answer_that_another_keeps_meanwhile_is_the_answer(server: str) -> None:
    """The other one commits after this one has looked for an answer, and before it keeps its own."""
    command = Submit(work=(Work(task="mail"),), idempotency_key="k")
    others: list[Any] = []
    with (
        fresh_postgres(server, "answers") as url,
        open_engine(url, shipped()) as one,
        open_engine(url, shipped()) as other,
    ):

        def late(tx: UnitOfWork, asked: Submit) -> Any:
            if not others:
                others.append(other.send(command))
            return submit.submit(tx, asked)

        one.committer.verbs = {**one.verbs, Submit: late}
        assert [one.send(command)] == others
        assert one.read(lambda connection: find_matching(connection, 1, Filter())) == [others[0][0].unit]
