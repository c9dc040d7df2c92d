"""Attacks by acts, births and paths that a client makes by hand, on either database."""

from collections.abc import Callable, Iterator

import msgspec

from interlock.kernel.paths import Path
from tests.store.attack_scene import (
    CONSTRAINT,
    DENIED,
    FOR_EVER,
    HERE,
    NEW,
    NOTHING,
    Attack,
    Found,
    Raw,
    Refused,
    claim,
    complete,
    on_all,
    rule,
)
from tests.store.raw_acts import path_of, unlisted


def acts() -> Iterator[Attack]:
    """Acts by hand over units that are not where the act begins."""
    chain, shape = rule("chain"), rule("act")
    yield on_all("an act over no unit that there is", lambda s: claim(s, units=[NEW]), chain)
    yield on_all("an act over nobody", lambda s: claim(s, units=Raw("'{}'" if s.pg else "'[]'")), shape)
    yield on_all("an act over 1,001 units", lambda s: claim(s, units=list(range(1, 1002)), before=[1] * 1001), shape)
    yield on_all("another tenant's unit", lambda s: claim(s, "alien", tenant=1), chain)
    yield on_all("for another tenant", lambda s: claim(s, tenant=2), chain)
    yield on_all("another version", lambda s: claim(s, version=2), chain)
    yield on_all("another attempt", lambda s: claim(s, attempt=2), chain)
    yield on_all("another fence", lambda s: claim(s, fence=3), chain)
    yield on_all("another act before it", lambda s: claim(s, before=[s["spare_act"]]), chain)
    yield on_all("no act before it", lambda s: claim(s, before=[None]), chain, shape)
    yield on_all("fewer acts before it", lambda s: claim(s, before=[1, 2]), shape)
    yield on_all("under a lease that is none", lambda s: claim(s, leases=[NEW]), chain)
    yield on_all("under another's lease", lambda s: complete(s, leases=[s["held_lease"] + 1]), chain)
    yield on_all("without the lease that is live", lambda s: complete(s, leases=None), chain)
    yield on_all("with fewer leases", lambda s: complete(s, leases=[1, 2]), shape)
    yield on_all("an old fence", lambda s: complete(s, fence=0), chain)
    yield on_all(
        "twice the same unit",
        lambda s: claim(s, units=[s["free"]] * 2, before=[s["free_act"]] * 2, secrets=["a", "b"]),
        chain,
    )
    yield on_all(
        "two acts over one unit",
        lambda s: [*claim(s), *claim(s, number=2, before=[s["free_act"]], secrets=["other"])],
        chain,
        rule("event-first"),
    )
    yield on_all(
        "one of two is elsewhere", lambda s: [s.act(s.path("free", "claim/grant"), "free", "run", leases=None)], chain
    )
    yield on_all("a grant over a live lease", lambda s: claim(s, "held"), chain)
    yield on_all("a grant over a live lease that is left out", lambda s: claim(s, "held", leases=None), chain)
    yield on_all("a path from another state", lambda s: [s.act(s.path("run", "complete/complete"), "free")], chain)
    yield on_all(
        "a path of another lifecycle",
        lambda s: [
            s.act(
                path_of("agent_job", *AGENT_CLAIM),
                "free",
                worker=s["worker"],
                ttl=1,
                beat=1,
                until=s["now"],
                secrets=["h"],
            )
        ],
        chain,
    )
    yield on_all(
        "a path that nobody listed",
        lambda s: [s.act(unlisted("queued", "complete", "succeeded"), "free")],
        rule("listed-hop"),
    )
    yield on_all("a path with another digest", lambda s: claim(s, path_digest="0" * 64), rule("listed-hop"))
    yield on_all(
        "a forced path that no operator allowed", lambda s: [s.act(s.forced, "free", reason="so")], rule("forced")
    )
    yield on_all("a forced path for no reason", lambda s: [s.act(s.forced, "free")], shape)
    yield on_all("an act in the year 2255", lambda s: claim(s, at=FOR_EVER), rule("time"))
    yield on_all("an act before the last one", lambda s: claim(s, at=s.unit("free").changed_at - 1, until=1), chain)
    yield on_all(
        "the number of another's transaction",
        lambda s: claim(s, id=s["free_act"] + 5),
        rule("position"),
        rule("append-only"),
    )
    yield on_all("a number far ahead", lambda s: claim(s, id=2**62), rule("position"))
    yield on_all(
        "the number of an act that there is", lambda s: claim(s, id=s["free_act"]), CONSTRAINT, rule("append-only")
    )
    yield on_all(
        "a number that there is, and no conflict",
        lambda s: [
            s.insert_act(
                s.act_row(s.path("free", "claim/grant"), "free", id=s["free_act"]), rest="ON CONFLICT DO NOTHING"
            )
        ],
        NOTHING,
        rule("append-only"),
    )
    yield on_all(
        "a payload that is no JSON",
        lambda s: claim(s, payload='"cost" {'),
        Refused("invalid input syntax for type json"),
        shape,
    )
    yield on_all("a payload that is a list", lambda s: claim(s, payload="[]"), shape)
    yield on_all("available seven times", lambda s: claim(s, available=7), shape)
    yield on_all("a held unit left available", lambda s: claim(s, available=1), CONSTRAINT)
    yield on_all("a grant without a secret", lambda s: claim(s, secrets=None), shape)
    yield on_all("a grant of an empty secret", lambda s: claim(s, secrets=[None]), shape)
    yield on_all("a grant to nobody", lambda s: claim(s, worker=None), shape)
    yield on_all("a grant for ever", lambda s: claim(s, until=FOR_EVER), shape)
    yield on_all(
        "a grant to who is no worker", lambda s: claim(s, worker=s["spare"]), Found("workers hold what they hold")
    )
    yield on_all(
        "an end that leaves the lease", lambda s: [s.act(s.path("run", "complete"), "run")], rule("chain", "listed-hop")
    )
    yield on_all(
        "a retreat that leaves the lease",
        lambda s: [s.act(s.path("run", "release"), "run")],
        rule("chain", "listed-hop"),
    )
    yield on_all("a claim of which no worker knows", claim, Found("workers hold what they hold"))
    yield on_all(
        "an effect before its cause",
        lambda s: [
            *claim(s, number=5),
            *[
                s.act(
                    path_of("job", "assigned", "GRANTED", "start/activate"),
                    "free",
                    number=3,
                    version=2,
                    fence=1,
                    before=[Raw(HERE.format(number=5)) if s.pg else s.last_act + 5],
                    leases=[Raw(HERE.format(number=5)) if s.pg else s.last_act + 5],
                )
            ],
        ],
        chain,
        rule("position"),
    )
    yield on_all(
        "an event by hand",
        lambda s: ["INSERT INTO event (unit, version) VALUES (1, 9)"],
        Refused("cannot insert into view"),
        Refused("it is a view"),
    )
    yield Attack(
        "a digest by hand",
        lambda s: claim(s, digest="0" * 64),
        app=Refused("non-DEFAULT"),
        owner=Refused("non-DEFAULT"),
        lite=Found("acts are what their digests say"),
    )
    yield Attack(
        "a path that is retired",
        lambda s: [s.fill("UPDATE transition_path SET retired = 1 WHERE id = <claim>"), *claim(s)],
        app=DENIED,
        owner=rule("listed-hop"),
        lite=rule("listed-hop"),
    )
    yield Attack(
        "a path of an edge that is retired",
        lambda s: ["UPDATE edge SET retired = 1 WHERE lifecycle = 'job' AND trigger = 'claim'", *claim(s)],
        app=DENIED,
        owner=rule("listed-hop"),
        lite=rule("listed-hop"),
    )
    yield Attack(
        "a path that comes back without its edge",
        lambda s: [
            "UPDATE edge SET retired = 1 WHERE lifecycle = 'job' AND trigger = 'claim'",
            s.fill("UPDATE transition_path SET retired = 0 WHERE id = <claim>"),
        ],
        app=DENIED,
        owner=rule("listed-hop"),
        lite=rule("listed-hop"),
    )


AGENT_CLAIM = ("queued", None, "claim/grant")


def births() -> Iterator[Attack]:
    first, chain = rule("event-first"), rule("chain", "event-first")
    yield on_all("a birth of nobody", lambda s: [s.birth(NEW)], first, chain)
    yield on_all("a birth of who lives", lambda s: [s.birth(s["free"])], first, chain)
    yield on_all(
        "a birth that follows another act",
        lambda s: s.make_born(s.birth(NEW, before=[s["free_act"]]), s.born(NEW)),
        rule("act"),
        chain,
    )
    yield on_all(
        "a birth under a lease",
        lambda s: s.make_born(s.birth(NEW, leases=[s["held_lease"]]), s.born(NEW)),
        rule("act"),
        chain,
    )
    yield on_all("a birth at version 3", lambda s: s.make_born(s.birth(NEW, version=3), s.born(NEW)), rule("act"))
    yield on_all("twice the same unit is born", lambda s: s.make_born(s.birth(NEW, NEW), s.born(NEW)), first, chain)
    yield on_all(
        "one unit, two births",
        lambda s: [*s.make_born(s.birth(NEW), s.born(NEW)), s.birth(NEW, number=2)],
        first,
        chain,
    )
    yield on_all("one of two is not born", lambda s: s.make_born(s.birth(NEW, NEW + 1), s.born(NEW)), first, chain)
    yield on_all(
        "a unit that its act does not list",
        lambda s: s.make_born(s.birth(NEW), s.born(NEW), s.born(NEW + 1)),
        first,
        Found("state is the fold of events"),
    )
    yield on_all("a unit without an act", lambda s: [s.born(NEW)], first, Found("state is the fold of events"))
    yield on_all("a unit of an old act", lambda s: [s.born(NEW, act=s["free_act"], born=s["free_act"])], first)
    yield on_all(
        "a unit that is born ended",
        lambda s: s.make_born(s.birth(NEW), s.born(NEW, state="succeeded", category="success", outcome="success")),
        first,
    )
    yield on_all(
        "a unit that is born held",
        lambda s: s.make_born(s.birth(NEW), s.born(NEW, lease="GRANTED", lease_id=s["held_lease"], holder=s["worker"])),
        first,
    )
    yield on_all(
        "a unit that is born with a past", lambda s: s.make_born(s.birth(NEW), s.born(NEW, attempt=3, fence=2)), first
    )
    yield on_all(
        "a unit of another lifecycle", lambda s: s.make_born(s.birth(NEW), s.born(NEW, lifecycle="task")), first, chain
    )
    yield on_all("a unit of another tenant", lambda s: s.make_born(s.birth(NEW), s.born(NEW, tenant=2)), first, chain)
    yield on_all(
        "a child of another tenant", lambda s: s.make_born(s.birth(NEW), s.born(NEW, parent=s["alien"])), rule("tenant")
    )
    yield on_all("a child of nobody", lambda s: s.make_born(s.birth(NEW), s.born(NEW, parent=NEW + 7)), rule("tenant"))
    yield on_all(
        "born into another's lane",
        lambda s: s.make_born(s.birth(NEW), s.born(NEW, lane=s["alien_lane"])),
        rule("tenant"),
    )
    yield on_all(
        "a unit without a body", lambda s: s.make_born(s.birth(NEW), s.born(NEW)), Found("every unit has its body")
    )
    yield on_all(
        "a body of nobody",
        lambda s: [
            "INSERT INTO body (unit, tenant, task, created_at, input, labels, policy, correlation, trace) "
            f"VALUES ({NEW}, 1, 'mail', 1, '{{}}', '{{}}', '{{}}', '', '')"
        ],
        rule("tenant"),
    )


def paths() -> Iterator[Attack]:
    """Paths by hand: only hops that are listed, one after the other, with what becomes of the unit."""

    def listing(name: str, path: Path | Callable[[], Path], expected: str, lite: str = "") -> Attack:
        made = path if isinstance(path, Path) else path()
        return Attack(
            name, lambda s: [s.list_path(made)], app=DENIED, owner=rule(expected), lite=rule(lite or expected)
        )

    job = path_of("job", "running", "ACTIVE", "complete/complete")
    claimed, started = path_of("job", "queued", None, "claim/grant"), path_of("job", "assigned", "GRANTED", "start")
    change = msgspec.structs.replace
    yield listing("a path with an unlisted hop", unlisted("queued", "complete", "succeeded"), "listed-hop")
    yield listing("a path with a renamed hop", change(job, hops=(job.hops[0]._replace(name="x"),)), "listed-hop")
    yield listing("a path of another category", change(job, category="ready", outcome=0), "path")
    yield listing("a path with another outcome", change(job, outcome=0), "path")
    yield listing("a path that starts anyhow", change(job, started=9), "path")
    yield listing("a path of no hop", change(job, hops=()), "path")
    yield listing("a path with a gap", change(job, hops=(claimed.hops[0], job.hops[0])), "path")
    yield listing(
        "a path that does not count its fence", change(claimed, hops=(claimed.hops[0]._replace(fence=0),)), "path"
    )
    yield listing("a path that opens an attempt", change(job, hops=(job.hops[0]._replace(attempt=1),)), "listed-hop")
    yield listing(
        "a path with an unlisted hop of the lease",
        change(job, hops=(job.hops[0]._replace(lease_from="COMPLETED", lease_to="ACTIVE"),)),
        "listed-lease-hop",
    )
    yield listing(
        "a path whose lease jumps",
        change(
            started,
            category="active",
            hops=(claimed.hops[0], started.hops[0]._replace(lease_from="ACTIVE", lease_to="REVOKED")),
        ),
        "path",
    )
    yield listing("a forced path of two hops", change(job, forced=True, hops=job.hops * 2), "path")
    yield listing("a forced path to nowhere", unlisted("queued", "force", "nowhere", forced=True), "path")
    yield Attack(
        "a path of another digest",
        lambda s: [s.list_path(path_of("job", "queued", None, "claim/grant"), id=NEW)],
        app=DENIED,
        owner=rule("path"),
        lite=Found("paths are what their digests say"),
    )
