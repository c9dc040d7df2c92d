"""`interlock tenant` as an operator runs it."""

from pathlib import Path

import pytest

from interlock.lifecycles import shipped
from interlock.store import migrate
from interlock.store.sqlite import SqliteConnection
from tests.cli.inside import Ask, inside


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    connection = SqliteConnection(str(tmp_path / "work.db"))
    migrate.upgrade(connection, shipped().values())
    connection.close()
    return inside(f"sqlite:///{tmp_path / 'work.db'}")


def test_limits_are_set_shown_and_listed(ask: Ask) -> None:
    assert ask("tenant", "show").out == "tenant 1 (default): 0 held, limit none; 0 waiting, limit none\n"
    done = ask("tenant", "set", "2", "--name", "acme", "--max-running", "5", "--max-waiting", "1")
    assert done.out == "tenant 2 (acme): 0 held, limit 5; 0 waiting, limit 1\n"
    assert ask("submit", "mail", "--tenant", "2").code == 0
    refused = ask("submit", "mail", "--tenant", "2")
    assert (refused.code, refused.out) == (2, "")
    assert "of tenant 'acme' at most 1 jobs may wait; 1 do, and 1 more were submitted" in refused.err
    told = ask("tenant", "set", "acme", "--max-waiting", "none", "--json").json
    assert (told["tenant"], told["max_running"], told["max_waiting"], told["waiting"]) == (2, 5, None, 1)
    assert (told["changed"], told["changed_by"]) == (True, "ann")
    assert ask("tenant", "set", "acme", "--max-requests", "60", "--json").json["max_requests"] == 60
    assert ask("tenant", "show", "acme", "--json").json["max_waiting"] is None
    first, second = ask("tenant", "list").rows
    assert first == ["1", "default", "0", "none", "0", "none", "none", "", ""]
    assert second[:6] == ["2", "acme", "0", "5", "1", "none"]
    assert [one["name"] for one in ask("tenant", "list", "--json").json["tenants"]] == ["default", "acme"]


def test_how_long_verbose_notes_are_kept_is_set_and_shown(ask: Ask) -> None:
    shown = ask("tenant", "show", "--json").json
    assert (shown["keep_beats"], shown["keep_verbose"]) == ("2d", "14d")
    told = ask("tenant", "set", "1", "--keep-beats", "90s", "--keep-verbose", "1h", "--json").json
    assert (told["keep_beats"], told["keep_verbose"], told["changed"]) == ("1m 30s", "1h", True)
    assert ask("tenant", "set", "1", "--keep-beats", "default", "--json").json["keep_beats"] == "2d"
    for wrong in ("soon", "0s", "10ms", "9000d"):
        refused = ask("tenant", "set", "1", "--keep-beats", wrong)
        assert (refused.code, refused.out) == (2, "")
        assert "allowed" in refused.err
    assert ask("tenant", "show", "--json").json["keep_verbose"] == "1h"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("set", "1"), "Give --name, --max-running, --max-waiting, --max-requests, --keep-beats or"),
        (("set", "1", "--max-running", "many"), "allowed is a number from 0, or none"),
        (("set", "none-such", "--max-running", "1"), "there is no tenant 'none-such'; there are 1 (default)"),
        (("set", "2", "--name", "default"), "tenant 1 has the name 'default' already"),
        (("show", "9"), "there is no tenant '9'"),
    ],
)
def test_a_wrong_word_is_told_the_right_ones(ask: Ask, args: tuple[str, ...], text: str) -> None:
    done = ask("tenant", *args)
    assert (done.code, done.out) == (2, "")
    assert text in done.err
