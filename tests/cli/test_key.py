"""`interlock key` as an operator runs it."""

import re
from pathlib import Path

import pytest

from interlock.kernel.api_keys import digest_of, read_key
from interlock.kernel.ids import parse_id
from tests.cli.inside import Ask, inside


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    ask = inside(f"sqlite:///{tmp_path / 'work.db'}")
    assert ask("submit", "mail").code == 0
    return ask


@pytest.mark.req("X-04")
def test_a_key_is_shown_once_and_only_its_digest_is_kept(ask: Ask, tmp_path: Path) -> None:
    done = ask("key", "create", "ci", "--scope", "submit,read", "--expires", "90d")
    tenant, key, secret = read_key(done.out.strip()) or (0, 0, "")
    assert (done.code, tenant, len(secret)) == (0, 1, 64)
    (row,) = ask("key", "list").rows
    assert (parse_id(row[0]), row[1:5]) == (key, ["ci", "read,submit", "", "valid"])
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("work.db*"))
    assert digest_of(secret).encode() in kept
    assert secret.encode() not in kept


def test_rotate_and_revoke(ask: Ask) -> None:
    made = ask("key", "create", "ci", "--scope", "admin", "--json").json
    again = ask("key", "rotate", made["id"], "--json").json
    assert again["id"] == made["id"]
    assert again["key"] != made["key"]
    assert re.fullmatch(rf"{made['id']} \(ci\) is revoked\n", ask("key", "revoke", made["id"]).out)
    assert "it was before" in ask("key", "revoke", made["id"]).out
    assert ask("key", "list", "--json").json["keys"][0]["state"] == "revoked"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("create", "ci", "--scope", "write"), "allowed are submit, read"),
        (("create", "ci", "--scope", "read", "--tenant", "9"), "there is no tenant 9"),
        (("create", "ci", "--scope", "read", "--expires", "soon"), "--expires"),
        (("rotate", "key_1"), "has no key_1"),
        (("revoke", "key_uuu!"), "is no id"),
    ],
)
def test_what_is_wrong_is_told(ask: Ask, args: tuple[str, ...], text: str) -> None:
    done = ask("key", *args)
    assert (done.code, done.out) == (2, "")
    assert text in done.err
