"""What Prometheus is told: exactly what happened, whoever is asked, and nothing that is secret."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from interlock.core import submit
from interlock.core.reactions import run_reactions
from interlock.kernel.commands import (
    Archive,
    Claim,
    Drain,
    Finish,
    Heartbeat,
    LeaseGrant,
    LeaseRef,
    Outcome,
    Position,
    Register,
    Release,
    Revoke,
    Submit,
    Tick,
    Work,
)
from interlock.kernel.ids import parse_id
from interlock.kernel.metrics import TYPES_MOST
from interlock.kernel.minute_metrics import HOUR_US, KEPT_US, MINUTE_US
from interlock.lifecycles import shipped
from interlock.store.connection import Connection
from interlock.store.ids import Ids
from interlock.store.queries.metrics import LAST, read_observed_events
from interlock.store.queries.minute_metrics import find_wrong_minutes
from interlock.store.queries.views import events_of
from interlock.store.unit_of_work import open_unit_of_work
from interlock.store.url import connect
from tests.server.stage import FOREIGN, OWN, Stage, staged

SECOND = 1_000_000
LINE = re.compile(r"^interlock_(\w+?)(?:\{(.*)\})? (\S+)$", re.M)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Told = dict[tuple[str, ...], float]


class Clock:
    """The store's time, which stands still until it is moved."""

    def __init__(self, stage: Stage) -> None:
        self.now = 1_700_000_000 * SECOND
        for connection in (*stage.app.engine.sessions, *stage.app.engine.readers.sessions):
            connection.keep_time(lambda: self.now)


def scraped(stage: Stage, key: str | None = None) -> Told:
    """Every sample by its name and the values of its labels, in the order of their names."""
    answer = stage.ask("GET", "/metrics", key=key)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (name, *(value for _, value in sorted(LABEL.findall(labels)))): float(value)
        for name, labels, value in LINE.findall(answer.text)
    }


def grown(before: Told, after: Told) -> Told:
    """What differs, but for buckets and moves."""
    names = {one for one in after if not one[0].startswith(("latency_seconds_bucket", "transitions"))}
    return {one: after[one] - before.get(one, 0) for one in names if after[one] != before.get(one, 0)}


def held(grant: LeaseGrant) -> LeaseRef:
    return LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)


@pytest.mark.req("R2-41", "R2-42")
@pytest.mark.usefixtures("inside")
def test_a_scenario_is_counted_exactly(stage: Stage) -> None:
    clock = Clock(stage)
    before = scraped(stage)
    for task in ("good", "flaky", "lost", "bad"):
        stage.job(task=task, queue=task, attempts=2)
    clock.now += 3 * SECOND
    good, flaky, lost, bad = (stage.claim(queue=task, name=task) for task in ("good", "flaky", "lost", "bad"))
    stage.finish(bad, ended="failure", error="no", error_class="PermanentError")
    clock.now += 2 * SECOND
    made_up = LeaseRef(unit=good.unit, fence=good.fence, lease="0" * 64)
    for _ in range(3):  # within one instant: the first of them makes leases longer, the others do not
        heard = stage.app.send(Heartbeat(held=(held(good), held(flaky), made_up, held(bad))))
        assert [one.accepted for one in heard] == [True, True, False, False]
    clock.now += 7 * SECOND
    stage.finish(good)
    stage.finish(flaky, ended="failure", error="once")
    clock.now += 60 * SECOND
    stage.app.send(Tick())
    stage.finish(stage.claim(queue="flaky", name="flaky"), ended="failure", error="twice", stage="commit")
    (late,) = stage.app.send(Finish(outcomes=(Outcome(held=held(lost)),)))
    assert not late.accepted
    assert grown(before, scraped(stage)) == {
        ("claims_total", "good"): 1, ("claims_total", "flaky"): 2, ("claims_total", "lost"): 1,
        ("claims_total", "bad"): 1,
        ("lease_renewals_total",): 2,
        ("lease_expiries_total", "lost"): 1,
        ("claim_conflicts_total", "finish"): 1, ("claim_conflicts_total", "heartbeat"): 6,
        ("retries_total", "TransientError", "flaky"): 1, ("retries_total", "lost", "lost"): 1,
        ("failures_total", "TransientError", "flaky"): 2, ("failures_total", "PermanentError", "bad"): 1,
        ("dlq_total", "exhausted_retries", "commit", "flaky"): 1,
        ("dlq_count",): 1,
        ("latency_seconds_count", "queue", "good"): 1, ("latency_seconds_sum", "queue", "good"): 3,
        ("latency_seconds_count", "queue", "flaky"): 2, ("latency_seconds_sum", "queue", "flaky"): 63,
        ("latency_seconds_count", "queue", "lost"): 1, ("latency_seconds_sum", "queue", "lost"): 3,
        ("latency_seconds_count", "queue", "bad"): 1, ("latency_seconds_sum", "queue", "bad"): 3,
        ("latency_seconds_count", "run", "good"): 1, ("latency_seconds_sum", "run", "good"): 7,
        ("latency_seconds_count", "run", "flaky"): 2, ("latency_seconds_sum", "run", "flaky"): 7,
        ("latency_seconds_count", "run", "bad"): 1,
        ("queue_depth", "lost"): 1, ("workers",): 4,
        **{("worker_completions_total", name): 1 for name in ("good", "flaky", "bad")},
    }  # fmt: skip
    found = scraped(stage)
    buckets = {
        one[1]: value
        for one, value in found.items()
        if one[0] == "latency_seconds_bucket" and one[2:] == ("run", "good")
    }
    assert (buckets["5.0"], buckets["10.0"], buckets["+Inf"]) == (0, 1, 1)
    assert found["counting_behind",] == 0
    minutes_are_those_of_the_events(stage)
    minutes_are_forgotten_in_time(stage, clock)


def minutes_are_those_of_the_events(stage: Stage) -> None:
    """The scenario above, as charts see it: what happened in each of its two minutes."""
    told = stage.get("/v1/stats/history")
    series = {**told["ended"], **{name: told[name] for name in ("failures", "waiting", "held", "workers")}}
    assert {name: values[-2:] for name, values in series.items()} == {
        "success": [1, 0], "failure": [1, 0], "cancelled": [0, 0], "dead": [0, 1], "failures": [2, 1], "waiting": [1, 1],
        "held": [1, 0], "workers": [4, 4],
    }  # fmt: skip
    assert all(not any(values[:-2]) for values in series.values())
    assert {len(values) for values in series.values()} == {60}
    assert told["errors"] == [{"error": "TransientError", "attempts": 2}, {"error": "PermanentError", "attempts": 1}]
    queues = {one["queue"]: one for one in told["queues"]}
    assert {name: one["attempts"] for name, one in queues.items()} == {"flaky": 2, "bad": 1, "good": 1, "lost": 0}
    assert 5 < queues["good"]["run_p95"] <= 10
    assert queues["good"]["per_minute"] == round(1 / 59.533, 2)
    assert (queues["lost"]["run_p95"], 2.5 < queues["lost"]["wait_p95"] <= 5) == (None, True)
    for name, steps in (("24h", 96), ("7d", 84)):  # the same, in longer steps
        wide = stage.get(f"/v1/stats/history?range={name}")
        assert {name: sum(values) for name, values in wide["ended"].items()} == {
            "success": 1, "failure": 1, "cancelled": 0, "dead": 1,
        }  # fmt: skip
        assert (len(wide["failures"]), wide["errors"], wide["waiting"][-1]) == (steps, told["errors"], 1)
        assert [(one["queue"], one["attempts"]) for one in wide["queues"]] == [
            (one["queue"], one["attempts"]) for one in told["queues"]
        ]
    foreign = stage.get("/v1/stats/history", key=stage.foreign)
    assert (foreign["queues"], foreign["errors"]) == ([], [])
    assert not any(any(values) for values in (*foreign["ended"].values(), foreign["failures"], foreign["waiting"]))
    refused = stage.ask("GET", "/v1/stats/history?range=2h")
    assert (refused.status_code, "allowed are 1h, 24h, 7d" in refused.text) == (400, True)


def minutes_are_forgotten_in_time(stage: Stage, clock: Clock) -> None:
    """Minutes after two days, hours after ninety; as long as both are there, the minutes of an hour add up to it."""

    def spans(connection: Connection, tenant: int) -> set[int]:
        return {span for (span,) in connection.rows("SELECT DISTINCT span FROM metric_minute")}

    def wrong(connection: Connection, tenant: int) -> list[str]:
        return list(find_wrong_minutes(connection))

    assert (stage.app.read(spans), stage.app.read(wrong)) == ({MINUTE_US, HOUR_US}, [])
    clock.now += KEPT_US[MINUTE_US] + HOUR_US
    stage.app.send(Tick(limit=10_000))
    assert (stage.app.read(spans), stage.app.read(wrong)) == ({HOUR_US}, [])
    clock.now += KEPT_US[HOUR_US]
    stage.app.send(Tick(limit=10_000))
    assert stage.app.read(spans) == set()


@pytest.mark.req("R3-37", "R3-38")
@pytest.mark.usefixtures("inside")
def test_the_use_of_workers_and_what_they_finished(stage: Stage) -> None:
    """A success and a failure are both finished; what was released or taken is not. One that has shut down is gone."""
    own = {"tenant": OWN}
    busy, idle = (stage.app.send(Register(name=name, incarnation="1", capacity=2, **own)) for name in ("busy", "idle"))
    for _ in range(4):
        stage.job(attempts=1)

    def claim(key: str, limit: int) -> list[LeaseGrant]:
        return stage.app.send(Claim(worker=busy, key=key, nonce=f"{key:0>16}", limit=limit, **own))

    def of_workers() -> dict[tuple[str, ...], float]:
        return {name: value for name, value in scraped(stage).items() if name[0].startswith("worker_")}

    first, second = claim("a", 2)
    assert of_workers() == {
        ("worker_utilization", "busy"): 1.0, ("worker_utilization", "idle"): 0.0,
        ("worker_completions_total", "busy"): 0.0, ("worker_completions_total", "idle"): 0.0,
    }  # fmt: skip
    stage.finish(first)
    assert of_workers()["worker_utilization", "busy"] == 0.5
    stage.finish(second, ended="failure", error="no")
    third, fourth = claim("b", 2)
    stage.app.send(Release(held=(held(third),), **own))
    stage.app.send(Revoke(unit=fourth.unit, **own))
    stage.app.send(Drain(worker=idle, **own))
    assert of_workers() == {("worker_utilization", "busy"): 0.0, ("worker_completions_total", "busy"): 2.0}


def moves(connection: Connection, tenant: int) -> Counter[tuple[str, ...]]:
    sql = "SELECT lifecycle, coalesce(source, ''), target FROM event WHERE tenant = :tenant AND (source IS NULL OR source <> target)"
    return Counter(connection.rows(sql, {"tenant": tenant}))


@pytest.mark.req("R2-53")
def test_every_move_is_counted_by_where_it_came_from_and_went(stage: Stage) -> None:
    stage.run()
    stage.dead()
    for _ in range(3):
        stage.job()
        stage.finish(stage.claim())
    found = {(one[2], one[1], one[3]): value for one, value in scraped(stage).items() if one[0] == "transitions_total"}
    assert found == stage.app.read(moves)
    assert scraped(stage)["claims_total", "mail"] == 4


def test_servers_that_count_at_once_count_once(url: str) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(staged(url))
        second = stack.enter_context(staged(url, first))
        for _ in range(20):
            first.job()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: scraped((first, second)[number % 2]), range(16)))
        for one in (first, second):
            assert scraped(one)["transitions_total", "", "job", "queued"] == 20


def test_what_commits_late_is_counted_too(stage: Stage) -> None:
    """A transaction that is still open when others are counted is not passed over."""
    if not stage.app.url.startswith("postgres"):
        return  # there is one writer
    stage.job()  # its queue is known
    with closing(connect(stage.app.url)) as connection, closing(connect(stage.app.url)) as beside:
        ids = Ids(beside)
        ids.reserve(10)
        tx = open_unit_of_work(connection, shipped(), ids, [1])
        submit.submit(tx, Submit(work=(Work(task="slow"),)))
        run_reactions(tx)
        stage.job()
        assert scraped(stage)["transitions_total", "", "job", "queued"] < 3
        connection.commit()
    assert scraped(stage)["transitions_total", "", "job", "queued"] == 3


def test_strangers_cannot_make_it_large_or_break_its_lines(stage: Stage) -> None:
    tasks = ['a"b\\c\nd', *(f"t{n}" for n in range(TYPES_MOST + 20))]
    stage.app.send(Submit(work=tuple(Work(task=task, queue=f"q{n}") for n, task in enumerate(tasks))))
    worker = stage.app.send(Register(name="w", incarnation="1", capacity=1_000))
    queues = tuple(f"q{n}" for n in range(len(tasks)))
    grants = stage.app.send(Claim(worker=worker, key="k", nonce="n" * 16, limit=1_000, queues=queues))
    assert len(grants) == len(tasks)
    text = stage.ask("GET", "/metrics").text
    found = scraped(stage)
    claims = {one[1]: value for one, value in found.items() if one[0] == "claims_total"}
    assert (len(claims), sum(claims.values()), claims["other"]) == (TYPES_MOST + 1, len(tasks), 21)
    assert r'interlock_claims_total{type="a\"b\\c\nd"} 1.0' in text
    stage.app.send(Submit(work=tuple(Work(task="t", queue=f"z{n}") for n in range(150))))
    depths = {one[1]: value for one, value in scraped(stage).items() if one[0] == "queue_depth"}
    assert (len(depths), sum(depths.values())) == (100, 150)


def test_it_has_no_secret_and_nothing_of_others(stage: Stage) -> None:
    stage.job(input={"card": "4111-1111"}, correlation="my-word")
    grant = stage.claim()
    stage.job(key=stage.foreign, task="theirs")
    text = stage.ask("GET", "/metrics").text
    for word in (grant.lease, "4111", "my-word", stage.own, stage.own.rpartition("_")[2], "theirs"):
        assert word not in text
    theirs = scraped(stage, stage.foreign)
    assert ("claims_total", "mail") not in theirs
    assert theirs["queue_depth", "default"] == 1


def test_counts_stay_when_history_leaves(stage: Stage) -> None:
    job = stage.job()
    grant = stage.claim()
    stage.app.send(Heartbeat(held=(held(grant),)))
    stage.finish(grant)
    before = scraped(stage)
    unit = stage.app.job(job).unit
    with pytest.raises(Exception, match="what would be deleted is") as refused:
        stage.archive(Archive(unit=unit, file="f", digest="none"))
    digest = str(refused.value).rpartition(" ")[2]
    stage.archive(Archive(unit=unit, file="f", digest=digest))
    assert scraped(stage) == before


def test_times_of_attempts_are_those_that_events_tell_however_long_a_history_is(stage: Stage) -> None:
    jobs = [stage.job(attempts=100) for _ in range(2)]
    for turn in range(12):
        grant = stage.claim()
        if turn % 4 == 0:  # it was never started
            stage.app.send(Release(held=(held(grant),)))
        else:
            stage.finish(grant, ended="failure", error="Away: no", after_us=1)
        stage.app.send(Tick(tenant=OWN))
    stage.finish(stage.claim())
    waited, ran = list[int](), list[int]()
    for job in jobs:
        began = before = 0
        for event in stage.app.read(events_of, parse_id(job)):
            at = event.at
            waited += [at - before] if event.lease_from is None and event.lease_to else []
            began = at if event.lease_to == "ACTIVE" else began
            ran += [at - began] if event.lease_from == "ACTIVE" and event.lease_to not in (None, "ACTIVE") else []
            before = at
    leases = stage.app.lifecycles["lease"]
    _, observed = stage.app.read(read_observed_events, leases, Position(""), LAST)
    assert sorted(each.at - each.waited_from for each in observed if each.waited_from is not None) == sorted(waited)
    assert sorted(each.at - each.ran_from for each in observed if each.ran_from is not None) == sorted(ran)


def test_a_tenant_that_does_nothing_is_told_so(stage: Stage) -> None:
    found = scraped(stage, stage.key(tenant=FOREIGN))
    assert set(found.values()) == {0}
