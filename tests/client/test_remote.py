"""A client over HTTP: where it is, what it shows, and that whatever is lost on the way is done once or said to be unknown."""

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

import interlock
from interlock.client.app import App
from interlock.client.keys import issue_key
from interlock.core.engine import VERBS
from interlock.kernel import commands
from interlock.kernel.commands import (
    Cancel,
    Command,
    Decide,
    Drain,
    FireSchedule,
    Requeue,
    Rerun,
    Signal,
    Submit,
    Tick,
    Vote,
    Work,
)
from interlock.kernel.errors import Denied, InterlockError, LimitReached, Refused, Unavailable, Unknown
from interlock.plugins import STANDARD
from interlock.store.queries.views import Filter, count_by, listing
from tests.server.house import House

KEY = f"ilk_3_4_{'0' * 64}"


@pytest.fixture
def there(house: House, tmp_path: Path) -> Iterator[App]:
    """The app beside the database of a server."""
    app = App(f"sqlite:///{tmp_path}/work.db")
    with house.hosts(app):
        yield app


@pytest.fixture
def far(house: House, there: App) -> Iterator[App]:
    with App(house.base, key=house.key("admin", "vouch")) as app:
        app.task(name="mail")(lambda: None)
        yield app


class Lossy(httpx.AsyncBaseTransport):
    """A network that loses answers, or requests, of what changes something."""

    def __init__(self, inner: httpx.AsyncBaseTransport, loses: int, before: bool = False) -> None:
        self.inner, self.loses, self.before, self.asked = inner, loses, before, 0
        self.hold = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if "commands" not in request.url.path:
            return await self.inner.handle_async_request(request)
        self.asked += 1
        if self.hold:
            await asyncio.Event().wait()
        if self.before and self.asked <= self.loses:
            raise httpx.ConnectError("no way")
        answer = await self.inner.handle_async_request(request)
        if self.asked <= self.loses:
            await answer.aclose()
            raise httpx.ReadError("cut")
        return answer

    async def aclose(self) -> None:
        await self.inner.aclose()


def through(app: App, loses: int, before: bool = False) -> Lossy:
    http: httpx.AsyncClient = app.engine.transport.http  # type: ignore[attr-defined]
    http._transport = lossy = Lossy(http._transport, loses, before)
    return lossy


def jobs(app: App) -> int:
    return len(app.read(listing, Filter(lifecycle="job"), 1_000))


# Where it is, and who it is.


@pytest.mark.parametrize(
    ("url", "more", "text"),
    [
        ("http://h:1", {}, "a server needs a key: give key=, or INTERLOCK_KEY"),
        ("http://h:1", {"key": "secret"}, "this is no key; a key begins with ilk_"),
        (f"http://{KEY}@h:1", {"key": KEY}, "a key does not belong into a URL"),
        ("http://h:1/?key=1", {"key": KEY}, "is no address of a server"),
        ("https://", {"key": KEY}, "is no address of a server"),
        ("http://h:1", {"key": KEY, "tenant": 2}, "this key is for tenant 3, and not for 2"),
        ("sqlite:///work.db", {"key": KEY}, "a key is for a server; a database has none"),
    ],
)
def test_a_wrong_address_or_key_is_refused_where_it_is_written(
    monkeypatch: pytest.MonkeyPatch, url: str, more: Any, text: str
) -> None:
    monkeypatch.delenv("INTERLOCK_KEY", raising=False)
    with pytest.raises(InterlockError, match=text) as refused:
        interlock.open(url, **more)
    assert "0" * 64 not in str(refused.value)


def test_the_key_comes_from_the_environment_and_says_whose_work_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_KEY", KEY)
    app = interlock.open("https://work.example/interlock/")
    assert (app.url, app.tenant, app.far) == (
        "https://work.example/interlock",
        3,
        ("https://work.example/interlock", KEY),
    )
    assert interlock.open("sqlite:///work.db").far is None


def test_without_its_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("remote", "http_transport", "long_poll"):
        monkeypatch.delitem(sys.modules, f"interlock.client.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(InterlockError, match=r"pip install 'interlock\[http\]'"):
        interlock.open("http://127.0.0.1:9", key=KEY).connect()


def test_where_no_server_is_it_says_so_at_once() -> None:
    with pytest.raises(Unavailable, match="there is no server at http://127"):
        interlock.open("http://127.0.0.1:9", key=KEY).connect()


def test_a_key_that_is_not_valid_or_lacks_the_scope_is_told(house: House, there: App) -> None:
    job = there.task(name="mail")(lambda: None).submit()
    with App(house.base, key=house.key("read")) as reader, App(house.base, key=KEY.replace("_3_", "_1_")) as nobody:
        assert reader.job(job.id).state == "queued"
        with pytest.raises(Denied, match="this key lacks the scope 'operate'"):
            reader.job(job.id).cancel()
        with pytest.raises(Denied, match="this key is not valid"):
            nobody.job(job.id).look()


# What can be asked.


def test_every_command_has_a_scope_or_is_asked_beside_the_database(far: App) -> None:
    beside = {
        commands.Archive, commands.SetTenant, commands.Tick, commands.Admit, commands.CountEvents, commands.AddBlob,
        commands.RestoreTree,
    }  # fmt: skip
    assert {kind for kind in {**VERBS, **STANDARD.commands} if not kind.public} == beside
    with pytest.raises(InterlockError, match="Tick cannot be sent over HTTP; send it beside the database"):
        far.send(Tick())
    with pytest.raises(InterlockError, match="'count_by' cannot be read over HTTP"):
        far.read(count_by)
    with pytest.raises(InterlockError, match="over HTTP there is none"):
        far.engine.read(lambda connection: connection.now())
    with closing(sqlite3.connect(":memory:")) as mine, pytest.raises(InterlockError, match="tx: a server cannot join"):
        far.tasks["mail"].submit(tx=mine)


def came_of(app: App, command: Command[Any]) -> Any:
    try:
        return app.send(command)
    except InterlockError as error:
        return error


REFUSED: list[Command[Any]] = [
    Cancel(unit=77),
    Decide(unit=1, trigger="approve"),
    Decide(unit=1, trigger="nonsense"),
    Vote(unit=1, voter="ann"),
    Signal(unit=77, name="paid"),
    Requeue(unit=1),
    Rerun(unit=1),
    FireSchedule(name="none"),
    Drain(worker=1),
    Submit(work=(Work(task=""),)),
    Submit(work=(Work(task="a", priority=2**40),)),
    Submit(work=(Work(task="a", lifecycle="none"),)),
    Submit(work=(Work(task="a"), Work(task="b"))),  # over the limit of the tenant
]


def test_a_refusal_is_the_same_as_beside_the_database(there: App, far: App) -> None:
    unit = there.task(name="mail")(lambda: None).submit().unit
    there.send(commands.SetTenant(max_waiting=1))
    kinds = set()
    for command in REFUSED:
        asked = {name: unit for name in ("unit", "worker") if getattr(command, name, 0) == 1}
        command = msgspec.structs.replace(command, **asked)
        here, away = (came_of(app, command) for app in (there, far))
        if isinstance(here, InterlockError):
            assert (type(away), str(away), vars(away)) == (type(here), str(here), vars(here)), command
            kinds.add(type(here))
        else:
            assert away == here
    assert {Unknown, Refused, LimitReached} <= kinds
    with pytest.raises(Unknown, match="no job, run or step 77"):
        far.job(77).look()


def test_the_tenant_is_that_of_the_key_whatever_a_command_says(there: App, house: House, far: App) -> None:
    with App(house.base, key=house.key("admin", tenant=2)) as other:
        other.send(Submit(work=(Work(task="theirs"),), tenant=1))
        assert (jobs(other), jobs(far), other.tenant) == (1, 0, 2)
        key = issue_key(other, commands.CreateKey(name="reader", scopes=("read",), tenant=1)).text
    with App(house.base, key=key) as reader:
        assert (reader.tenant, jobs(reader)) == (2, 1)


# What is lost on the way.


@pytest.mark.parametrize("before", [True, False])
def test_what_is_lost_on_the_way_is_asked_again_and_done_once(there: App, far: App, before: bool) -> None:
    lossy = through(far, 2, before)
    job = far.tasks["mail"].submit()
    assert (lossy.asked, jobs(there)) == (3, 1)
    assert job.created
    lossy.loses = 4
    assert job.cancel().applied, "the second answer is the first one"
    assert lossy.asked == 5


def test_what_stays_lost_is_said_to_be_unknown_or_not_done(
    there: App, far: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["interlock.client.http_transport"], "PAUSES", (0.0, 0.0))
    lossy = through(far, 3)
    with pytest.raises(
        Unavailable, match="it is not known whether the request was carried out: check before you send it again"
    ):
        far.tasks["mail"].submit()
    assert jobs(there) == 1
    lossy.asked, lossy.before = 0, True
    with pytest.raises(Unavailable, match="does not answer: no way; nothing was changed"):
        far.tasks["mail"].submit()
    assert jobs(there) == 1


# Many together.


def test_what_is_sent_together_goes_together_and_one_fault_spoils_nothing_else(there: App, far: App) -> None:
    lossy = through(far, 0)
    task = far.tasks["mail"]

    async def many() -> list[Any]:
        strange = far.asend(Submit(work=(Work(task="nul", labels="\0"),)))
        large = far.asend(Submit(work=(Work(task="large", labels=f'{{"x": "{"x" * (1 << 20)}"}}'),)))
        plain = [task.submit.aio() for _ in range(300)]
        return await asyncio.gather(strange, large, *plain, return_exceptions=True)

    strange, large, *plain = asyncio.run(many())
    assert "NUL" in str(strange)
    assert "send it in parts" in str(large)
    assert len({job.unit for job in plain}) == 300 == jobs(there)
    assert lossy.asked < 300


def test_a_closed_client_opens_again_and_one_that_is_lost_does_not(far: App) -> None:
    job = far.tasks["mail"].submit()
    door = far.engine
    far.close()
    far.close()
    assert job.state == "queued"
    with pytest.raises(Unavailable, match="this client is closed"):
        door.send(Cancel(unit=job.unit))


def test_what_is_under_way_is_answered_when_a_client_is_closed_or_said_to_be_unknown(
    far: App, there: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = far.engine.put(Submit(work=(Work(task="a"),)))
    far.close()
    assert answered.result()[0].created
    monkeypatch.setattr(sys.modules["interlock.client.remote"], "GRACE", 0.0)
    through(far, 0).hold = True
    cut = far.engine.put(Submit(work=(Work(task="a"),)))
    far.close()
    with pytest.raises(Unavailable, match="closed before there was an answer; whether this was done is not known"):
        cut.result(60)


def test_definitions_of_both_kinds_are_made_in_their_order(far: App, there: App) -> None:
    far.workflow("flow", steps=["mail"])
    far.every("1h", name="hourly")(far.tasks["mail"])
    made: Callable[..., Any] = far.put_all
    assert [future.result().name for future in made(far.definitions)] == ["mail", "flow", "hourly"]
    assert [one.name for one in there.schedules.stored()] == ["hourly"] == [one.name for one in far.schedules.stored()]
