"""Attacks on rows: what acts write, what was written once, and what operators alone may write; on either database."""

from collections.abc import Iterator

from tests.store.attack_scene import CONSTRAINT, DENIED, Attack, Expected, Found, attack, rule
from tests.store.attacks_acts import acts, births, paths


def by_acts() -> Iterator[Attack]:
    """Every column that acts write, and those that are fixed at birth."""
    text, number = "'x'", "77"
    values = {
        "id": number,
        "tenant": "2",
        "lifecycle": "'task'",
        "parent": "<spare>",
        "born": number,
        "state": "'succeeded'",
        "category": "'success'",
        "outcome": "'success'",
        "version": "9",
        "act": "<spare_act>",
        "changed_at": number,
        "started_at": number,
        "attempt": "9",
        "fence": "9",
        "lease": text,
        "lease_id": "<held_lease>",
        "holder": "<worker>",
        "rests_in": text,
        "dead_at": number,
    }
    for column, value in values.items():
        yield attack(
            f"{column} of a unit by hand",
            f"UPDATE unit SET {column} = {value} WHERE id = <free>",
            app=DENIED,
            owner=rule("event-first"),
            lite=rule("event-first"),
        )


def bodies() -> Iterator[Attack]:
    """What a unit was given at its birth."""
    values = {
        "unit": "77",
        "tenant": "2",
        "task": "'x'",
        "created_at": "1",
        "input": "'{}'",
        "labels": "'{}'",
        "policy": "'{}'",
        "correlation": "'x'",
        "trace": "'x'",
        "mutex": "'x'",
        "limit_key": "'x'",
        "retry_of": "<free>",
        "rate_key": "'x'",
    }
    for column, value in values.items():
        yield attack(
            f"{column} of a body by hand",
            f"UPDATE body SET {column} = {value} WHERE unit = <late>",
            app=DENIED,
            owner=rule("identity"),
            lite=rule("identity"),
        )
    same = rule("identity")
    yield attack("key of a body", "UPDATE body SET key = 'l' WHERE unit = <late>", app=same, owner=same, lite=same)
    yield attack(
        "key of a body given up", "UPDATE body SET key = NULL WHERE unit = <late>", app=same, owner=same, lite=same
    )
    gone = rule("append-only")
    yield attack("a body deleted", "DELETE FROM body WHERE unit = <done>", app=DENIED, owner=gone, lite=gone)


def derived() -> Iterator[Attack]:
    """What programs write beside acts."""
    everywhere: list[tuple[str, str, Expected]] = [
        ("a held unit offered", "available_at = 1 WHERE id = <held>", CONSTRAINT),
        ("a settled unit offered", "available_at = 1 WHERE id = <done>", CONSTRAINT),
        ("a unit hidden from claims", "available_at = NULL WHERE id = <free>", Found("available means claimable")),
        ("a withheld unit offered", "parked_on = 'withheld' WHERE id = <free>", rule("withheld")),
        ("another tenant's lane", "lane = <alien_lane> WHERE id = <free>", rule("tenant")),
        ("a settled unit woken", "wake_at = 1 WHERE id = <done>", Found("what is settled rests")),
        ("children that are none", "total = 3 WHERE id = <free>", Found("parents count their children")),
        ("needs that are none", "unmet = 3 WHERE id = <free>", Found("available means claimable")),
        ("a cost that nobody told of", "cost = 3 WHERE id = <free>", Found("costs add up")),
    ]
    for name, sql, expected in everywhere:
        yield attack(name, f"UPDATE unit SET {sql}", app=expected, owner=expected, lite=expected)


def history() -> Iterator[Attack]:
    """What was written once."""
    only = rule("append-only")
    for name, sql in {
        "an act changed": "UPDATE act SET actor = 'x' WHERE id = <done_act>",
        "an act deleted": "DELETE FROM act WHERE id = <done_act>",
        "all acts deleted": "DELETE FROM act",
        "a unit deleted": "DELETE FROM unit WHERE id = <done>",
        "what an act tells changed": "UPDATE act_detail SET payload = '{}'",
        "what an act tells deleted": "DELETE FROM act_detail",
        "an act said to be gone": "INSERT INTO act_gone VALUES (<done_act>, 1, 'x')",
        "an act gone that never was": "INSERT INTO act_gone VALUES (77, 1, '<done_digest>')",
        "an edge renamed": "UPDATE edge SET name = 'x' WHERE trigger = 'claim'",
        "an edge of another severity": "UPDATE edge SET severity = 'error'",
        "an edge that leads elsewhere": "UPDATE edge SET target = 'succeeded' WHERE trigger = 'claim'",
        "an edge deleted": "DELETE FROM edge",
        "a path changed": "UPDATE transition_path SET target = 'succeeded' WHERE id = <claim>",
        "a path that opens attempts": "UPDATE transition_path SET opens = 5 WHERE id = <claim>",
        "a path told otherwise": "UPDATE transition_path SET told = '[]' WHERE id = <claim>",
        "a path deleted": "DELETE FROM transition_path WHERE id = <claim>",
        "a hop renamed": "UPDATE path_hop SET name = 'x' WHERE path = <claim>",
        "a hop deleted": "DELETE FROM path_hop WHERE path = <claim>",
        "a hop added": "INSERT INTO path_hop VALUES (<claim>, 9, 'x', 'a', 'b', 'x', 'info', 0, 0, NULL, NULL)",
    }.items():
        yield attack(name, sql, app=DENIED, owner=only, lite=only)
    yield attack(
        "what an act never told",
        "INSERT INTO act_detail VALUES (<free_act>, <free>, 1, '{}')",
        app=only,
        owner=only,
        lite=only,
    )
    yield attack(
        "an act gone that is there",
        "INSERT INTO act_gone VALUES (<done_act>, 1, '<done_digest>')",
        app=DENIED,
        owner=only,
        lite=Found("seals are those of the acts below them"),
    )
    yield attack("a tenant deleted", "DELETE FROM tenant WHERE id = 2", app=DENIED, owner=only, lite=only)
    same = rule("identity")
    yield attack("a tenant's id changed", "UPDATE tenant SET id = 3 WHERE id = 2", app=same, owner=same, lite=same)


def seals() -> Iterator[Attack]:
    no, found = rule("seal"), Found("seals are those of the acts below them")
    columns = "INSERT INTO seal (tenant, number, first_act, last_act, acts, root, at) VALUES "
    root = "'" + "0" * 64 + "'"
    one = "(CASE WHEN <unsealed> = <unsealed_last> THEN 1 ELSE 2 END)"
    for name, sql, expected in (
        ("a seal with a false root", f"(1, <sealed> + 1, <unsealed>, <unsealed_last>, {one}, {root}, 1)", found),
        ("a seal that skips a number", f"(1, <sealed> + 2, <unsealed>, <unsealed_last>, {one}, {root}, 1)", no),
        ("a seal that skips an act", f"(1, <sealed> + 1, <unsealed> + 1, <unsealed_last> + 1, 1, {root}, 1)", no),
        ("a seal over what is sealed", f"(1, <sealed> + 1, <sealed_act>, <unsealed_last>, 2, {root}, 1)", no),
        ("a seal up to no act", f"(1, <sealed> + 1, <unsealed>, 4611686018427387904, 2, {root}, 1)", no),
        ("a seal of nothing", f"(1, <sealed> + 1, <unsealed>, <unsealed>, 0, {root}, 1)", no),
        ("a seal over another tenant's acts", f"(2, 2, <unsealed>, <unsealed_last>, {one}, {root}, 1)", no),
    ):
        yield attack(name, columns + sql, app=expected, owner=expected, lite=expected)
    yield attack("a seal changed", f"UPDATE seal SET root = {root}", app=DENIED, owner=no, lite=no)
    yield attack("a seal deleted", "DELETE FROM seal", app=DENIED, owner=no, lite=no)


def leases() -> Iterator[Attack]:
    no = rule("lease")
    held = "WHERE id = <held_lease>"  # one row for all units of the claim
    own = "INSERT INTO lease VALUES (<held_lease>, <{unit}>, 1, {worker}, {secret}, {until}, {ttl}, 20000000, NULL, 1)"
    given = {
        "unit": "held",
        "worker": "<worker>",
        "secret": "(SELECT lease_hash FROM unit WHERE id = <held>)",
        "until": "<now> + 41000000",
        "ttl": "60000000",
    }
    for name, sql in {
        "a lease by hand": "INSERT INTO lease VALUES (<free_act>, <free>, 1, <worker>, 'h', 1, 1, 1, NULL, 1)",
        "a second lease": "INSERT INTO lease VALUES (<free_act>, <held>, 1, <worker>, 'h', 1, 1, 1, NULL, 1)",
        "a lease shortened": f"UPDATE lease SET until = 1 {held}",
        "a lease for ever": f"UPDATE lease SET until = 9000000000000000 {held}",
        "another secret": f"UPDATE lease SET secret = 'mine' {held}",
        "another worker": f"UPDATE lease SET worker = <spare> {held}",
        "other terms": f"UPDATE lease SET ttl = 9000000000 {held}",
        "a lease ended by hand": f"UPDATE lease SET ended_at = 1 {held}",
        "a lease brought back": "UPDATE lease SET ended_at = NULL WHERE unit = <taken>",
        "a lease that is over renewed": "UPDATE lease SET until = until + 1 WHERE unit = <taken>",
        "another unit's lease": f"UPDATE lease SET unit = <free> {held}",
        "fewer units under a lease": f"UPDATE lease SET units = units - 1 {held}",
        "more units under a lease": f"UPDATE lease SET units = units + 1 {held}",
        "a row of one's own with another secret": own.format(**{**given, "secret": "'mine'"}),
        "a row of one's own for another worker": own.format(**{**given, "worker": "<spare>"}),
        "a row of one's own for ever": own.format(**{**given, "until": "9000000000000000"}),
        "a row of one's own that is over": own.format(**{**given, "until": "1"}),
        "a row of one's own on other terms": own.format(**{**given, "ttl": "9000000000"}),
        "a row of one's own for what is not held": own.format(**{**given, "unit": "free"}),
        "the row of many once more": own.replace("<{unit}>", "0").format(**given),
    }.items():
        yield attack(name, sql, app=DENIED, owner=no, lite=no)
    yield attack("a live lease deleted", f"DELETE FROM lease {held}", app=no, owner=no, lite=no)


def operators() -> Iterator[Attack]:
    no = rule("forced")
    columns = "INSERT INTO forced_move (unit, version, tenant, target, actor, reason, at) VALUES "
    for name, sql in {
        "a forced move for no reason": "(<free>, 2, 1, 'succeeded', 'a', '', 1)",
        "a forced move of a version that was": "(<free>, 1, 1, 'succeeded', 'a', 'so', 1)",
        "a forced move to nowhere": "(<free>, 2, 1, 'nowhere', 'a', 'so', 1)",
        "a forced move of another tenant's unit": "(<alien>, 2, 1, 'succeeded', 'a', 'so', 1)",
    }.items():
        yield attack(name, columns + sql, app=DENIED, owner=no, lite=no)
    archive = "INSERT INTO archived (unit, tenant, version, born, head, file, digest, at) SELECT id, tenant, "
    no = rule("archived")
    for name, sql in {
        "a live unit archived": "version, born, '<done_digest>', 'f', 'd', 1 FROM unit WHERE id = <run>",
        "archived with another head": "version, born, 'x', 'f', 'd', 1 FROM unit WHERE id = <done>",
        "archived at another version": "version - 1, born, '<done_digest>', 'f', 'd', 1 FROM unit WHERE id = <done>",
        "archived with another birth": "version, born - 1, '<done_digest>', 'f', 'd', 1 FROM unit WHERE id = <done>",
    }.items():
        yield attack(name, archive + sql, app=DENIED, owner=no, lite=no)


def everywhere() -> list[Attack]:
    """Those that can be made on either database."""
    kinds = (by_acts, bodies, derived, acts, births, history, seals, leases, operators, paths)
    return [one for kind in kinds for one in kind()]
