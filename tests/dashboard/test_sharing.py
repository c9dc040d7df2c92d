"""Pages that many look at are made once, and nobody misses what they were told of."""

import asyncio

import pytest

from interlock.dashboard import pages, sharing
from interlock.dashboard.sharing import SharedAnswers
from interlock.kernel.commands import Submit, Work
from tests.dashboard.visitor import Forms, Visitor
from tests.server.stage import Stage


class KnownAnswers(SharedAnswers):
    """Those of a server whose name is known."""

    def __init__(self) -> None:
        super().__init__()
        self.server = "here"


@pytest.fixture
def instants(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of the present instant."""
    numbers = [7]
    monkeypatch.setattr(pages, "SharedAnswers", KnownAnswers)
    monkeypatch.setattr(sharing, "count_instants", lambda: numbers[-1])
    return numbers


def test_those_who_were_told_together_share_an_answer(instants: list[int], stage: Stage) -> None:
    first, second = Visitor(stage).sign_in(stage.own), Visitor(stage).sign_in(stage.own)
    other = Visitor(stage).sign_in(stage.key("read", "operate"))

    def look(visitor: Visitor, change: str = "", page: str = "/ui/jobs") -> str:
        return visitor.send("GET", page, {"Interlock-Change": change} if change else {}).text

    assert "mail" not in look(first, "here.7")
    stage.app.send(Submit(work=(Work(task="mail"),)))
    assert "mail" not in look(second, "here.7")  # it is told of the job later
    assert "mail" in look(other, "here.7")  # another key may see something else
    assert "mail" in look(second)
    for change in ("there.7", "here.8", "here.1", "here.-1", "here.", "7", "here.7.7"):
        assert "mail" in look(second, change), change
    instants.append(8)
    assert "mail" in look(second, "here.8")


def test_a_shared_answer_has_each_ones_own_token(instants: list[int], stage: Stage) -> None:
    stage.app.send(Submit(work=(Work(task="mail"),)))
    texts = []
    for visitor in (Visitor(stage).sign_in(stage.own), Visitor(stage).sign_in(stage.own)):
        text = visitor.send("GET", "/ui/queues", {"Interlock-Change": "here.7"}).text
        (form,) = [form for form in Forms(text).forms if form["action"] == "/ui/queues/pause"]
        answer = visitor.send("POST", "/ui/queues/pause", data=form["fields"])
        assert answer.status_code == 303, Forms(answer.text).text
        texts.append(form["fields"])
    assert texts[0]["form_token"] != texts[1]["form_token"]
    assert texts[0]["form_key"] != texts[1]["form_key"]


def test_an_answer_is_made_once_and_outlives_the_first_who_asked() -> None:
    async def play() -> None:
        shared, made, may_end = SharedAnswers(), list[int](), asyncio.Event()

        async def make() -> str:
            made.append(1)
            await may_end.wait()
            return "page"

        change = await shared.wait_for_instant()
        first = asyncio.create_task(shared.share(change, "key", make))
        others = [asyncio.create_task(shared.share(change, "key", make)) for _ in range(9)]
        while not made:
            await asyncio.sleep(0)
        first.cancel()
        may_end.set()
        assert await asyncio.gather(*others) == ["page"] * 9
        assert len(made) == 1

    asyncio.run(play())
