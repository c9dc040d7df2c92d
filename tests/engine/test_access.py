"""Keys: made, rotated and revoked, with nothing kept of a secret but its digest."""

import pytest

from interlock.kernel.api_keys import SCOPES, allows, digest_of, format_key, read_key
from interlock.kernel.commands import CreateKey, Issued, RevokeKey, RotateKey, SetTenant
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.rows import Key as Row
from interlock.store.queries.api_keys import find_api_key, list_api_keys
from tests.engine.world import SECOND, World

SECRET, OTHER = "a" * 64, "b" * 64


def create(world: World, **facts: object) -> Issued:
    given = {"name": "ci", "scopes": ("read", "submit"), "digest": digest_of(SECRET), **facts}
    return world.send(CreateKey(**given))  # type: ignore[arg-type]


def row(world: World, key: int, tenant: int = 1) -> Row:
    found = world.engine.read(lambda connection: find_api_key(connection, tenant, key), tenant)
    assert found
    return found


def test_a_key_is_made_and_only_its_digest_is_kept(world: World) -> None:
    made = create(world, expires_us=60 * SECOND, actor="eve")
    kept = row(world, made.key)
    assert (kept.digest, kept.scopes, kept.created_by) == (digest_of(SECRET), "read,submit", "eve")
    assert made.expires_at == kept.expires_at == world.now_us + 60 * SECOND
    for table in ("key", "answer"):
        assert SECRET not in repr(world.connection.rows(f"SELECT * FROM {table}"))


def test_rotation_keeps_the_id_and_changes_the_secret(world: World) -> None:
    made = create(world)
    again = world.send(RotateKey(key=made.key, digest=digest_of(OTHER)))
    assert (again.key, again.name, again.scopes) == (made.key, made.name, made.scopes)
    assert row(world, made.key).digest == digest_of(OTHER)
    assert len(world.engine.read(lambda connection: list_api_keys(connection, 1))) == 1


def test_a_revoked_key_stays_so(world: World) -> None:
    made = create(world)
    assert world.send(RevokeKey(key=made.key, actor="eve")).changed
    again = world.send(RevokeKey(key=made.key, actor="bob"))
    assert (again.revoked, again.changed, row(world, made.key).revoked_by) == (True, False, "eve")
    with pytest.raises(InterlockError, match="was revoked, and stays so"):
        world.send(RotateKey(key=made.key, digest=digest_of(OTHER)))


@pytest.mark.parametrize("key", [-(2**62), -33, -1, 0, 2**62])
def test_a_key_that_was_never_made_is_unknown(world: World, key: int) -> None:
    """A negative number once sent the engine's only writer into an endless loop, while it made the message."""
    for command in (RotateKey(key=key, digest=digest_of(OTHER)), RevokeKey(key=key)):
        with pytest.raises(Unknown, match="has no key_"):
            world.send(command)


def test_an_expired_key_is_rotated_only_with_a_new_length(world: World) -> None:
    made = create(world, expires_us=SECOND)
    world.pass_time(2)
    with pytest.raises(InterlockError, match="say for how long"):
        world.send(RotateKey(key=made.key, digest=digest_of(OTHER)))
    again = world.send(RotateKey(key=made.key, digest=digest_of(OTHER), expires_us=SECOND))
    assert again.expires_at == world.now_us + SECOND


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"scopes": ()}, "at least one of submit"),
        ({"scopes": ("write",)}, "allowed are submit, read"),
        ({"name": ""}, "name"),
        ({"digest": SECRET[:-1]}, "SHA-256"),
        ({"expires_us": 0}, "expires_us"),
        ({"expires_us": 2**63}, "expires_us"),
        ({"tenant": 9}, "there is no tenant 9"),
    ],
)
def test_what_is_wrong_is_told_and_changes_nothing(world: World, facts: dict[str, object], said: str) -> None:
    with pytest.raises(InterlockError, match=said):
        create(world, **facts)
    assert world.count("key") == 0


def test_the_keys_of_others_are_not_there(world: World) -> None:
    world.send(SetTenant(tenant=2, name="other"))
    made = create(world, tenant=2)
    assert world.engine.read(lambda connection: find_api_key(connection, 1, made.key)) is None
    assert world.engine.read(lambda connection: list_api_keys(connection, 1)) == []
    for order in (RotateKey(key=made.key, digest=digest_of(OTHER)), RevokeKey(key=made.key)):
        with pytest.raises(InterlockError, match="tenant 1 has no key_"):
            world.send(order)


def test_a_key_is_read_as_it_is_spelled() -> None:
    assert read_key(format_key(7, 4711, SECRET)) == (7, 4711, SECRET)
    for text in (
        "",
        "ilk",
        format_key(7, 4711, "x"),
        format_key(0, 1, SECRET),
        format_key(7, 4711, SECRET) + "a",
        "ilk_١_1_" + SECRET,
    ):
        assert read_key(text) is None


def test_admin_may_do_what_all_may_but_vouch_and_run_commands() -> None:
    assert [scope for scope in SCOPES if not allows(("admin",), scope)] == ["vouch", "shell"]
    assert allows(("admin", "vouch"), "vouch")
    assert [scope for scope in SCOPES if allows(("worker",), scope)] == ["worker"]
