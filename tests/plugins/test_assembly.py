"""Server, remote client and command line are assembled from the plugins that they are given."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.cli.app_loader import find_app, find_plugins, load_registry
from interlock.client.app import App
from interlock.core.plugin import Plugin, Registry
from interlock.kernel.commands import Claim, Command, Finish, LeaseRef, Outcome, Register, Start, Submit, Work
from interlock.kernel.errors import Denied, InterlockError
from interlock.plugins import STANDARD
from interlock.server.app import collect_operations
from interlock.server.openapi import build_openapi
from tests.plugins.reviews import PLUGIN, GiveReview, reviews_by
from tests.server.house import House, housed

ROOT = Path(__file__).parents[2]
NAMED = "tests.plugins.reviews:PLUGIN"


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with housed() as house:
        yield house


def review_job(app: App) -> int:
    """A job that has succeeded, so that there is a review of it; returns the review."""
    app.send(Submit(work=(Work(task="mail", options='{"reviews": {"by": "ann"}}'),)))
    worker = app.send(Register(name="w", incarnation="1"))
    (grant,) = app.send(Claim(worker=worker, nonce="0" * 32, key="1"))
    held = LeaseRef(grant.unit, grant.fence, grant.lease)
    app.send(Start(held=(held,)))
    app.send(Finish(outcomes=(Outcome(held=held),)))
    (review,) = app.read(reviews_by, "ann")
    return review


def test_a_command_and_a_query_of_a_plugin_are_served_and_reach_it_from_afar(house: House, tmp_path: Path) -> None:
    here = App(f"sqlite:///{tmp_path}/work.db", plugins=[PLUGIN])
    with house.hosts(here) as key, App(house.base, key=key, plugins=[PLUGIN]) as far:
        review = review_job(here)
        assert far.read(reviews_by, "ann") == [review]
        assert far.read(reviews_by, "bob") == []
        with App(house.base, key=house.key("operate"), plugins=[PLUGIN]) as other:
            with pytest.raises(Denied, match="lacks the scope 'approve'"):
                other.send(GiveReview(unit=review, verdict="fine"))
            with pytest.raises(Denied, match="lacks the scope 'read'"):
                other.read(reviews_by, "ann")
        with App(house.base, key=house.key("approve", "read", tenant=2), plugins=[PLUGIN]) as stranger:
            assert stranger.read(reviews_by, "ann") == []
            with pytest.raises(InterlockError, match="no job, run or step"):
                stranger.send(GiveReview(unit=review, verdict="fine"))
        assert far.send(GiveReview(unit=review, verdict="fine")) == "DONE"


def test_a_server_without_the_plugin_says_so(house: House, tmp_path: Path) -> None:
    here = App(f"sqlite:///{tmp_path}/work.db")
    with house.hosts(here) as key, App(house.base, key=key, plugins=[PLUGIN]) as far:
        with pytest.raises(InterlockError, match="GiveReview"):
            far.send(GiveReview(unit=1, verdict="fine"))
        with pytest.raises(InterlockError, match=r"there is nothing|Not Found|no such"):
            far.read(reviews_by, "ann")
        with App(house.base, key=key) as plain, pytest.raises(InterlockError, match="'reviews_by' cannot be read"):
            plain.read(reviews_by, "ann")


def test_the_api_describes_what_plugins_add_with_its_scope() -> None:
    text = build_openapi(collect_operations(Registry((*STANDARD.plugins, PLUGIN))), STANDARD.lifecycles({}))
    sent = text["components"]["schemas"]["GiveReview"]
    assert sorted(sent["required"]) == ["command", "unit", "verdict"]
    body = text["components"]["schemas"]["ApproveCommands"]["properties"]["commands"]
    assert "#/components/schemas/GiveReview" in str(body)
    assert "GiveReview" not in str(text["components"]["schemas"]["SubmitCommands"])
    assert text["paths"]["/v1/views/reviews_by"]["post"]["x-scope"] == "read"
    assert text["paths"]["/v1/reviews/{id}"]["post"]["x-scope"] == "approve"
    plain = build_openapi(collect_operations(STANDARD), STANDARD.lifecycles({}))
    assert "GiveReview" not in plain["components"]["schemas"]


def test_a_command_that_may_not_be_asked_over_http_is_not_served() -> None:
    class Hidden(Command[int], frozen=True, kw_only=True):
        """Only beside the database."""

    plugin = Plugin(name="hidden", commands={Hidden: lambda tx, command: 1})
    text = build_openapi(collect_operations(Registry((*STANDARD.plugins, plugin))), STANDARD.lifecycles({}))
    assert "Hidden" not in text["components"]["schemas"]


def test_a_command_named_as_another_is_refused() -> None:
    Taken: Any = type("Submit", (Command,), {"__doc__": "Another one."})  # noqa: N806
    with pytest.raises(ValueError, match="takes the command Submit, which another one has"):
        Registry((Plugin(name="odd", commands={Taken: lambda tx, command: None}),))


def test_what_a_plugin_reads_ahead_is_known_to_the_engine(tmp_path: Path) -> None:
    def reads(cache: Any, commands: Any) -> list[Any]:
        return ["what it reads"]

    plugin = Plugin(name="ahead", prefetches={GiveReview: reads})
    with App(f"sqlite:///{tmp_path}/work.db", plugins=[plugin]) as app:
        for committer in app.engine.committers:  # type: ignore[attr-defined]
            assert list(committer.prefetches[GiveReview](committer.cache, [])) == ["what it reads"]


# The command line.


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nowhere:PLUGIN", "names the plugin 'nowhere:PLUGIN': there is no module 'nowhere'"),
        ("tests.plugins.reviews", "no plugin of module 'tests.plugins.reviews'; it has tests.plugins.reviews:PLUGIN"),
        ("tests.plugins.reviews:GiveReview", "it has tests.plugins.reviews:PLUGIN"),
        ("json:PLUGIN", "'json:PLUGIN', which is no plugin of module 'json'; it has none; make one"),
        (":PLUGIN", "no module is named"),
        (f"{NAMED},{NAMED}", "a plugin is listed twice"),
    ],
)
def test_a_wrong_name_of_a_plugin_is_told_what_is_right(monkeypatch: pytest.MonkeyPatch, text: str, why: str) -> None:
    monkeypatch.setenv("INTERLOCK_PLUGINS", text)
    with pytest.raises(InterlockError, match=why):
        load_registry()


def test_the_app_of_a_worker_has_the_named_plugins_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "reviewed.py").write_text(
        "import interlock\nfrom tests.plugins.reviews import PLUGIN\n"
        "app = interlock.open('sqlite:///work.db')\nown = interlock.open('sqlite:///work.db', plugins=[PLUGIN])\n"
        "app.task(name='idle')(lambda: None)\nown.task(name='idle')(lambda: None)\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("INTERLOCK_PLUGINS", "")
    assert find_plugins() == []
    assert PLUGIN not in find_app("reviewed:app").registry.plugins
    monkeypatch.setenv("INTERLOCK_PLUGINS", f" {NAMED} ,")
    for name in ("app", "own"):
        app = find_app(f"reviewed:{name}")
        assert app.registry.plugins.count(PLUGIN) == 1
        assert "review" in app.lifecycles


def interlock(folder: Path, *words: str, plugins: str = NAMED) -> subprocess.CompletedProcess[str]:
    where = {"PYTHONPATH": str(ROOT), "INTERLOCK_PLUGINS": plugins, "INTERLOCK_DB": f"sqlite:///{folder}/work.db"}
    command = [sys.executable, "-c", "from interlock.cli import main; main()", *words]
    return subprocess.run(command, env=os.environ | where, capture_output=True, text=True, check=False, timeout=60)


def test_the_command_line_has_the_named_plugins(tmp_path: Path) -> None:
    assert interlock(tmp_path, "review", "who").stdout == "ann\n"
    assert "schema" in interlock(tmp_path, "db", "upgrade").stdout
    with App(f"sqlite:///{tmp_path}/work.db", plugins=[PLUGIN]) as app:
        review = review_job(app)
    shown = interlock(tmp_path, "show", str(review))
    assert "OPEN" in shown.stdout, shown.stderr
    assert interlock(tmp_path, "audit").returncode == 0
    wrong = interlock(tmp_path, "list", plugins="nowhere:PLUGIN")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("interlock: INTERLOCK_PLUGINS names the plugin 'nowhere:PLUGIN': there is no module")
