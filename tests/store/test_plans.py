"""However much lies ahead that nobody can claim, a claim reads what it takes, and every finder has its index."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from interlock.audit.laws import audit
from interlock.kernel.approvals import waiting
from interlock.kernel.commands import Claim, LeaseGrant, Register, Submit, Tick, Work
from interlock.kernel.rows import Unit
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.plugins.concurrency import queries as slot_queries
from interlock.plugins.evidence import queries as evidence_queries
from interlock.plugins.evidence.blobs import sweep_blobs
from interlock.plugins.evidence.logs import compress_logs
from interlock.plugins.pauses import queries as pause_queries
from interlock.plugins.schedules import queries as schedule_queries
from interlock.plugins.state_files import queries as state_queries
from interlock.plugins.state_files.documents import can_be_archived, count_moves, read_overview
from interlock.plugins.workflows import queries as workflow_queries
from interlock.plugins.workstreams import queries as stream_queries
from interlock.store.acts import UNITS_MAX
from interlock.store.flush import NeedChange, count_needs
from interlock.store.ids import Ids
from interlock.store.postgres import PostgresConnection
from interlock.store.queries import (
    feed,
    followers,
    for_verbs,
    metrics,
    places,
    task_graphs,
    tenants,
    trees,
    views,
    workers,
)
from interlock.store.queries import snapshots as reads_of
from interlock.store.sqlite import SqliteConnection
from interlock.store.unit_of_work import UnitOfWork, open_unit_of_work
from tests.store.databases import KINDS, Connection, declare, fresh, swap
from tests.store.filling import BIRTH, ENGINE_IDS, TAGS, Read, counted, fill, fill_beside, stepped, watched
from tests.store.raw_acts import bear, move, place_of, transaction

LIMIT, LANES = 10, 10_000
UNIT_KEY = ("unit_pkey", "sqlite_autoindex_unit_1")
NEED_KEY = ("need_pkey", "sqlite_autoindex_need_1")
BODY_KEY = ("body_pkey", "sqlite_autoindex_body_1")
PLACE_KEY = ("place_pkey", "sqlite_autoindex_place_1")
AHEAD, AHEAD_PROOF, FEW = 50_000, 500_000, 50
OTHERS = 1_000  # units of another tenant that are available, or due
FILLED = 10_000_007  # a unit that is filled in
NUMBERS = count()
LATER_ACTS = 300


def analyze(database: Connection, server: str) -> None:
    """The planner knows how much there is."""
    if isinstance(database, PostgresConnection):
        owner = PostgresConnection(swap(server, database.raw.info.dbname))
        owner.script("ANALYZE")
        owner.close()
    else:
        database.rows("ANALYZE")


@contextmanager
def filled(kind: str, folders: pytest.TempPathFactory, server: str, ahead: int) -> Iterator[Connection]:
    with fresh(kind, folders.mktemp("plans"), server) as connection:
        fill(connection, ahead, LANES)
        fill_beside(connection, min(ahead // 6, 5_000))
        fill(connection, OTHERS, OTHERS, tenant=2, due_at=1)
        yield connection


@pytest.fixture(scope="module", params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    server = request.getfixturevalue("running_postgres") if request.param == "postgres" else ""
    with filled(request.param, tmp_path_factory, server, AHEAD) as connection:
        yield connection


@pytest.fixture(params=KINDS)
def large(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, server: str
) -> Iterator[Connection]:
    with filled(request.param, tmp_path_factory, server, AHEAD_PROOF) as connection:
        yield connection


class Claimer:
    """A worker that can serve half of the lanes, and work for it."""

    def __init__(self, connection: Connection) -> None:
        self.engine = make_engine(connection, shipped())
        facts = {"incarnation": "1", "capabilities": tuple(TAGS), "capacity": 1_000}
        self.worker = self.engine.send(Register(name=f"w{next(NUMBERS)}", **facts))

    def submit(self, *lanes: str, **facts: Any) -> list[int]:
        """One unit for each lane that is named by what it asks for."""
        work = tuple(Work(task="mail", capabilities=tuple(lane), **facts) for lane in lanes)
        return [done.unit for done in self.engine.send(Submit(work=work))]

    def claim(self, limit: int = LIMIT, **facts: Any) -> list[LeaseGrant]:
        name = f"c{next(NUMBERS)}"
        return self.engine.send(Claim(worker=self.worker, key=name, nonce=f"{name:0>16}", limit=limit, **facts))


def read_of_unit(reads: list[Read]) -> float:
    return sum(read.rows.get("unit", 0) for read in reads)


def reads_little(database: Connection, server: str) -> None:
    """Whether the units of a claim come from one lane or from three, and whatever the planner knows."""
    claimer = Claimer(database)
    for lanes in (("",) * 15, ("", "a", "bc") * 5, ("a",) * 12 + ("", "bc")):
        made = claimer.submit(*lanes)
        with watched(database) as reads:
            grants = claimer.claim()
        assert [grant.unit for grant in grants] == made[:LIMIT]
        assert [(read.sql, read.scans) for read in reads if read.scans] == []
        assert [(read.sql, read.sorts) for read in reads if read.sorts] == []
        assert {"unit_claim", "unit_wake"} <= set.union(*(read.indexes for read in reads))
        if isinstance(database, PostgresConnection):
            assert LIMIT <= read_of_unit(reads) <= 3 * LIMIT, [(read.sql, read.rows) for read in reads]
        assert len(claimer.claim(100)) == len(lanes) - LIMIT
        analyze(database, server)


def test_a_claim_reads_what_it_takes(database: Connection, server: str) -> None:
    reads_little(database, server)


def test_a_claim_of_nothing_reads_nothing(database: Connection) -> None:
    claimer = Claimer(database)
    claimer.claim()
    with watched(database) as reads:
        assert claimer.claim() == []
    if isinstance(database, PostgresConnection):
        assert read_of_unit(reads) <= 1  # the worker's own row


def test_the_claims_of_a_group_read_what_they_take(database: Connection) -> None:
    """Although the database does not know yet what the first of them took."""
    claimers = [Claimer(database) for _ in range(30)]
    claimers[0].submit(*("", "a") * 15 * LIMIT)
    committer = claimers[0].engine.committer
    commands = [Claim(worker=one.worker, key="group", nonce=f"{one.worker:0>16}", limit=LIMIT) for one in claimers]
    futures = [committer.put(command) for command in commands]
    with watched(database) as reads:
        committer.step()
    taken = [grant.unit for future in futures for grant in future.result()]
    assert len(set(taken)) == len(taken) == 30 * LIMIT
    assert sum("unit_claim" in read.indexes for read in reads) <= len(claimers) / 2
    if isinstance(database, PostgresConnection):
        assert read_of_unit(reads) <= 3 * len(taken)


def steps_of_a_claim(database: SqliteConnection) -> int:
    claimer = Claimer(database)
    claimer.submit(*("", "a") * LIMIT)
    claimer.claim()
    with stepped(database) as steps:
        assert len(claimer.claim()) == LIMIT
    return steps[0]


def no_more_work(database: Connection, folders: pytest.TempPathFactory, server: str) -> None:
    """On SQLite the machine's own steps are counted, on PostgreSQL the rows that whole transactions read."""
    if isinstance(database, SqliteConnection):
        with filled("sqlite memory", folders, server, FEW) as almost_empty:
            assert isinstance(almost_empty, SqliteConnection)
            assert steps_of_a_claim(database) <= 1.5 * steps_of_a_claim(almost_empty)
        return
    claimer = Claimer(database)
    claimer.submit(*("", "a") * 5 * LIMIT)
    with counted(database) as rows:
        claimer.claim()
        for _ in range(9):  # a statement that is sent often is prepared, and planned without its values
            assert len(claimer.claim()) == LIMIT
    assert max(rows[1:]) <= 3 * LIMIT + LIMIT + 1  # what is taken is written, and so is the worker


def test_a_claim_is_no_more_work_with_more_ahead(
    database: Connection, tmp_path_factory: pytest.TempPathFactory, server: str
) -> None:
    no_more_work(database, tmp_path_factory, server)


@pytest.mark.proof
def test_a_claim_of_a_large_table(large: Connection, tmp_path_factory: pytest.TempPathFactory, server: str) -> None:
    reads_little(large, server)
    no_more_work(large, tmp_path_factory, server)


def test_a_tick_reads_its_own_tenants_clocks(database: Connection) -> None:
    engine = make_engine(database, shipped())
    with watched(database) as reads:
        assert engine.send(Tick()) == 0
    clocks = {
        "unit_wake",
        "lease_until",
        "token_back",
        "schedule_next",
        "pause_live",
        "blob_look_at",
        "unit_log_look_at",
        "meter_look_at",
    }
    assert {index for read in reads for index in read.indexes if not index.endswith(KEYS)} - SEALING == clocks
    assert read_of_unit(reads) == 0
    assert engine.send(Tick(tenant=2, limit=200)) == 200


KEYS = ("_pkey", "_1")  # how the names of primary keys end
SEALING = {"act_tenant", "act_gone_tenant"}
GONE: dict[str, Any] = {"id": 7, "tenant": 1, "lane": 0, "lifecycle": "job"}
TEMPLATE = {"template_pkey", "sqlite_autoindex_template_1"}
# A history is found by keys alone: the unit names its last act, and each act the one before it.
HISTORY = {
    name
    for table in ("unit", "act", "body", "transition_path", "path_hop", "act_detail")
    for name in (f"{table}_pkey", f"sqlite_autoindex_{table}_1")
}
HISTORY |= {"act_tenant"}
UNIT = {"unit_pkey", "sqlite_autoindex_unit_1"}
# Units share the row of their lease: who they are is in the act that granted it.
LEASE_KEY = {"lease_pkey", "sqlite_autoindex_lease_1"}
SHARED = {*LEASE_KEY, "act_pkey", "lease_apart"}  # the last one where few units have rows of their own
BIRTHS = {*UNIT, "act_pkey", "act_tenant"}
FINDERS: dict[str, tuple[Callable[[UnitOfWork], object], set[str]]] = {
    "overdue": (
        lambda tx: for_verbs.find_overdue(tx, LIMIT),
        {"unit_wake", "lease_until", "lease_apart", *UNIT, *SHARED},
    ),
    "held_by": (lambda tx: for_verbs.load_held_units(tx, 7), {"lease_worker", *UNIT, *SHARED}),
    "open_children": (lambda tx: for_verbs.load_open_children(tx, 7), {"unit_parent"}),
    "last_child": (lambda tx: for_verbs.load_last_child(tx, 7), {"unit_parent"}),
    "has_note": (lambda tx: for_verbs.has_note(tx, 7, "step", "a"), {"note_unit", "one_note_a_name"}),
    "submitter": (lambda tx: for_verbs.find_submitter(tx, FILLED), BIRTHS),
    "notes_named": (lambda tx: for_verbs.read_notes(tx, [7], "vote"), {"note_unit", "one_note_a_name"}),
    "results_below": (
        lambda tx: workflow_queries.read_child_results(tx, [7, 8]),
        {"unit_parent", "body_pkey", "sqlite_autoindex_body_1"},
    ),
    "newest_template": (lambda tx: workflow_queries.find_template(tx, 1, "t"), TEMPLATE),
    "template_of": (lambda tx: workflow_queries.find_template(tx, 1, "t", 1), TEMPLATE),
    "has_artifact": (
        lambda tx: for_verbs.has_artifact(tx, 7, 1, "a"),
        {"artifact_pkey", "sqlite_autoindex_artifact_1"},
    ),
    "compensations": (lambda tx: workflow_queries.read_compensations(tx, [7, 8]), {"note_unit", "one_note_a_name"}),
    "closing_event": (lambda tx: for_verbs.find_closing_event(tx, Unit(**GONE)), HISTORY),
    "last_grant": (lambda tx: for_verbs.find_last_grant(tx, Unit(**GONE)), HISTORY),
    "parked": (lambda tx: slot_queries.find_parked(tx, 1, "limit:k"), {"unit_parked"}),
    "slot_for": (lambda tx: slot_queries.lock_slot(tx, 1, "limit:k", 1), {"slot_pkey", "sqlite_autoindex_slot_1"}),
    "parked_urgency": (lambda tx: slot_queries.read_parked_urgency(tx, 1, "resource:lock:k", 4), {"unit_parked"}),
    "pauses": (lambda tx: pause_queries.peek_pauses(tx), {"pause_live"}),
    "outage": (lambda tx: pause_queries.lock_outage(tx, "stripe"), {"pause_name"}),
    "parked_on_pause": (lambda tx: pause_queries.find_parked_on(tx, "pause:task:t", 10), {"unit_parked"}),
    "due_schedules": (lambda tx: schedule_queries.lock_due_schedules(tx, 10), {"schedule_next"}),
    "known_schedule": (
        lambda tx: schedule_queries.find_schedule(tx, 1, "s"),
        {"schedule_pkey", "sqlite_autoindex_schedule_1"},
    ),
    "tokens_back": (lambda tx: slot_queries.take_due_tokens(tx, 10), {"token_back"}),
    "due_blobs": (lambda tx: sweep_blobs(tx, 10), {"blob_look_at"}),
    "known_blob": (
        lambda tx: evidence_queries.has_blob(tx.connection, 1, "ab" * 32),
        {"blob_pkey", "sqlite_autoindex_blob_1"},
    ),
    "due_logs": (lambda tx: compress_logs(tx, 10), {"unit_log_look_at"}),
    "logs_of": (
        lambda tx: evidence_queries.read_logs_of(tx, [7, 8]),
        {"unit_log_pkey", "sqlite_autoindex_unit_log_1"},
    ),
    "log_writers": (
        lambda tx: evidence_queries.read_writers_of(tx, [7, 8]),
        {"log_writer_pkey", "sqlite_autoindex_log_writer_1"},
    ),
    "answer_to": (lambda tx: for_verbs.find_answer(tx, 1, "s", "k"), {"answer_pkey", "sqlite_autoindex_answer_1"}),
    "incarnations": (
        lambda tx: for_verbs.lock_incarnations(tx, 1, "w"),
        {"worker_tenant_name_incarnation_key", "sqlite_autoindex_worker_2"},
    ),
    "lanes_of": (lambda tx: for_verbs.load_lanes(tx, 1), {"lane_pkey", "sqlite_autoindex_lane_1", "tenant_pkey"}),
    "done_again": (lambda tx: views.read_done_again(tx.connection, 1, [7, 8]), {"body_retry_of"}),
    "held_by_queue": (
        lambda tx: metrics.count_held_by_queue(tx.connection, 3),
        {"lease_worker", "lease_until", *UNIT_KEY, "lane_pkey", "sqlite_autoindex_lane_1", *SHARED},
    ),
    "held_now": (lambda tx: tenants.count_held_now(tx, 3), {"lease_worker", "lease_until", *LEASE_KEY}),
    "waiting_now": (lambda tx: tenants.count_waiting_now(tx, 3), {"unit_claim", "unit_parked", "unit_wake"}),
    "with_key": (lambda tx: for_verbs.find_by_key(tx, 1, "filled", "k7"), {"one_unit_a_key"}),
    "lock": (lambda tx: tx.lock_units([7, 8]), {"unit_pkey", "sqlite_autoindex_unit_1"}),
    "body": (lambda tx: tx.body(tx.lock_units([FILLED])[0]), {"body_pkey", "sqlite_autoindex_body_1"}),
    "count_needs": (lambda tx: count_needs(tx, dict.fromkeys((7, 8), NeedChange(1, 1))), {"need_reverse"}),
    "waiting_for": (lambda tx: places.find_waiting_for(tx, [7, 8]), {"need_reverse", *UNIT_KEY}),
    "waiting_for_a_task": (lambda tx: stream_queries.read_waiting(tx, 7), {"need_reverse", *UNIT_KEY}),
    "needs_of_a_task": (lambda tx: stream_queries.read_needs(tx, 7), {*NEED_KEY}),
    "unmet_names": (lambda tx: stream_queries.read_unmet_names(tx, 7), {*NEED_KEY, *UNIT_KEY, "one_place_a_unit"}),
    "children_of_a_stream": (lambda tx: list(stream_queries.read_children(tx, 7)), {"unit_parent", *UNIT, *BODY_KEY}),
    "needs_of_children": (
        lambda tx: stream_queries.read_needs_of_children(tx, 7),
        {"unit_parent", *NEED_KEY, *UNIT_KEY},
    ),
    "named_results": (lambda tx: stream_queries.read_named_results(tx, 7, ["a", "b"]), {*PLACE_KEY, *BODY_KEY}),
    "done_items": (lambda tx: stream_queries.read_done_items(tx, 7, ["a", "b"]), {*PLACE_KEY, *UNIT_KEY, *BODY_KEY}),
    "graph_tasks": (
        lambda tx: task_graphs.read_graph_tasks(tx.connection, 1, 7, "task"),
        {"unit_parent", "one_place_a_unit", *UNIT, *BODY_KEY},
    ),
    "graph_needs": (lambda tx: task_graphs.read_graph_needs(tx.connection, 1, 7), {"unit_parent", *NEED_KEY}),
    "graph_names": (lambda tx: task_graphs.read_place_names(tx.connection, 1, [7, 8]), {"one_place_a_unit"}),
    "blockers": (
        lambda tx: task_graphs.find_blockers(tx.connection, 1, 7, 5),
        {"one_place_a_unit", *NEED_KEY, *UNIT, *BODY_KEY},
    ),
    "named_tasks": (lambda tx: stream_queries.list_named_tasks(tx.connection, 1, 7), {*PLACE_KEY, *UNIT}),
    "stored_tasks": (
        lambda tx: tx.connection.rows(state_queries.TASKS_BELOW, {"tenant": 1, "unit": 7}),
        {"unit_parent", "one_place_a_unit", *UNIT, *BODY_KEY},
    ),
    "stored_needs": (
        lambda tx: tx.connection.rows(state_queries.NEEDS_BELOW, {"tenant": 1, "unit": 7}),
        {"unit_parent", *NEED_KEY},
    ),
    "open_below": (lambda tx: can_be_archived(tx.connection, 1, 7), {"unit_parent", *UNIT}),
    "open_tasks": (
        lambda tx: read_overview(tx.connection, 3, [7, 8]),
        {
            "unit_rests",
            "unit_claim",
            "unit_parked",
            "unit_wake",
            "lease_worker",
            *SHARED,
            "one_place_a_unit",
            *UNIT,
            *BODY_KEY,
            "worker_tenant_name_incarnation_key",
            "sqlite_autoindex_worker_2",
            "worker_pkey",
            "sqlite_autoindex_worker_1",
        },
    ),
    "worker_named": (
        lambda tx: workers.find_worker_named(tx.connection, 1, "nobody"),
        {"worker_tenant_name_incarnation_key", "sqlite_autoindex_worker_2"},
    ),
    "held_by_a_worker": (lambda tx: workers.list_held(tx.connection, 1, 7, 10), {"lease_worker", *UNIT, *SHARED}),
    "lost_by_a_worker": (lambda tx: workers.list_ended_leases(tx.connection, 3, 7, 10), {"lease_ended"}),
    "places": (lambda tx: list(places.read_places(tx, 7, ["a", "b"])), {*PLACE_KEY, *UNIT_KEY}),
    "names": (lambda tx: places.read_names(tx, [7, 8]), {"one_place_a_unit"}),
    "needs_below": (lambda tx: places.read_needs_below(tx, [7, 8]), {*NEED_KEY, *UNIT_KEY}),
    "results_of_needs": (
        lambda tx: places.list_results_of_needs(tx, [7, 8]),
        {*NEED_KEY, *UNIT_KEY, "one_place_a_unit", "body_pkey", "sqlite_autoindex_body_1"},
    ),
}


LOOKS: dict[str, tuple[Callable[[Connection], object], set[str]]] = {
    "resting": (lambda connection: trees.find_resting(connection, 1, waiting(shipped()), 50), {"unit_rests"}),
    "tree_of": (lambda connection: trees.read_tree(connection, 1, FILLED), {"unit_parent"}),
    "births_of": (lambda connection: trees.read_births(connection, 1, [7, 8]), BIRTHS),
    "events_in": (lambda connection: trees.read_events_in(connection, 1, [7, 8], 10**18), HISTORY),
    "workers": (lambda connection: views.workers_seen(connection, 3), UNIT),
    "handlers": (lambda connection: task_graphs.count_handlers(connection, 3), UNIT),
    "worker_loads": (lambda connection: connection.rows(state_queries.WORKER_LOADS, {"tenant": 3}), UNIT),
    "moves": (lambda connection: count_moves(connection, 3), {"act_tenant"}),
    "followers": (lambda connection: followers.read_followers(connection, 1, [7, 8]), {"need_reverse"}),
    "latest": (lambda connection: feed.read_latest(connection, 3, 5), {"act_tenant"}),
}


LARGE = ("unit", "body", "act", "member", "act_detail", "lease", "note")


def large_scans(reads: list[Read]) -> list[str]:
    """Tables that grow with the work and were read from one end to the other; edges and paths do not grow."""
    scans = [scan for read in reads for scan in read.scans]
    return [scan for scan in scans if set(re.findall(r"\w+", scan)) & set(LARGE)]


@pytest.mark.parametrize("name", LOOKS)
def test_what_people_look_at_has_its_index(database: Connection, server: str, name: str) -> None:
    look, indexes = LOOKS[name]
    analyze(database, server)
    declare(database, 1)
    with watched(database) as reads:
        look(database)
    database.rollback()
    assert large_scans(reads) == []
    assert indexes & {index for read in reads for index in read.indexes}
    if isinstance(database, PostgresConnection):
        assert sum(read.rows.get(table, 0) for read in reads for table in LARGE) <= 10


@pytest.mark.parametrize("name", FINDERS)
def test_a_finder_has_its_index(database: Connection, name: str) -> None:
    find, indexes = FINDERS[name]
    tx = open_unit_of_work(database, shipped(), Ids(database), [1])
    with watched(database) as reads:
        find(tx)
    database.rollback()
    assert large_scans(reads) == []
    assert reads[-1].indexes
    assert reads[-1].indexes <= indexes
    if isinstance(database, PostgresConnection) and name != "lanes_of":
        assert sum(sum(read.rows.values()) for read in reads) <= 2


# Document 002, line 51: (job_id, ts), (type, ts) and (correlation_id), each behind its tenant where ids are not unique.
# A job has its acts in the order of time; a path stands for the names of its events; a correlation is fixed at birth.
DOCUMENT_002: dict[str, tuple[str, str | None, tuple[str, ...]]] = {
    "by job": ("SELECT * FROM event WHERE unit = :unit AND at > 0 ORDER BY at", None, ()),
    "by type": (
        "SELECT * FROM journal WHERE tenant = 1 AND path = :path AND at > :at ORDER BY at, act LIMIT 10",
        "act_path",
        ("tenant", "path", "at", "id"),
    ),
    "by correlation": (
        "SELECT * FROM event WHERE unit IN (SELECT unit FROM body WHERE tenant = 1 AND correlation = :correlation)",
        "body_correlation",
        ("tenant", "correlation"),
    ),
}


def columns_of(database: Connection, index: str) -> tuple[str, ...]:
    """The columns of an index that holds all rows of its table, in order."""
    if isinstance(database, PostgresConnection):
        sql = (
            "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indexrelid "
            "WHERE indexrelid = to_regclass(:index) AND indpred IS NULL AND indisvalid ORDER BY attnum"
        )
    else:
        sql = "SELECT name FROM pragma_index_info(:index) ORDER BY seqno"
    return tuple(name for (name,) in database.rows(sql, {"index": index}))


@pytest.mark.req("R2-37")
@pytest.mark.parametrize("way", DOCUMENT_002)
def test_events_are_found_by_job_by_type_and_by_correlation(database: Connection, server: str, way: str) -> None:
    sql, index, columns = DOCUMENT_002[way]
    analyze(database, server)
    declare(database, 1)
    given = {"unit": FILLED, "path": BIRTH.id, "at": 0, "correlation": f"c{FILLED}"}
    with watched(database) as reads:
        found = database.rows(sql, {name: value for name, value in given.items() if f":{name}" in sql})
    database.rollback()
    assert len(found) == {"by job": 1, "by type": 10, "by correlation": 1}[way]
    assert large_scans(reads) == []
    if index is None:
        assert reads[-1].indexes <= HISTORY
        assert reads[-1].sorts == [] or reads[-1].rows.get("act", 1) == 1  # of one job
    else:
        assert columns_of(database, index) == columns
        assert index in reads[-1].indexes


def test_a_cursor_reads_what_it_shows(database: Connection, server: str) -> None:
    """Be it at the end, or inside an act of many units: no more acts are read than those that it tells of."""
    analyze(database, server)
    declare(database, 1, 2)
    acts = [act for (act,) in database.rows("SELECT id FROM act ORDER BY id")]
    for after in ((acts[3], 4), (acts[len(acts) // 2], 2), (acts[-2], UNITS_MAX // 2), (acts[-1], 10**6)):
        with watched(database) as reads:
            found = reads_of.read_events_after(database, after, LIMIT)
        positions = [position for position, _ in found]
        assert positions == sorted(set(positions))
        assert all(position > after for position in positions)
        assert large_scans(reads) == []
        assert set(reads[-1].sorts) <= {"Incremental Sort"}  # of each act's own units
        if isinstance(database, PostgresConnection):
            assert reads[-1].rows.get("act", 0) <= 4
            assert reads[-1].rows.get("unit", 0) == 0
    database.rollback()


@pytest.mark.parametrize("tenant", [1, 2])
def test_a_page_of_the_feed_reads_what_it_shows(database: Connection, server: str, tenant: int) -> None:
    """Also of a tenant that has few acts among the many of another one, wherever its cursor is."""
    claimer = Claimer(database)
    # Behind all acts of tenant 2. A few of them would be read and left out, which is as cheap.
    for _ in range(LATER_ACTS):
        claimer.submit("")
    claimer.claim(LATER_ACTS)
    analyze(database, server)
    declare(database, tenant)
    own = {"tenant": tenant}
    acts = [act for (act,) in database.rows("SELECT id FROM act WHERE tenant = :tenant ORDER BY id", own)]
    for after in ((0, 0), (acts[len(acts) // 2], 2), (acts[-1], 10**6)):
        with watched(database) as reads:
            found = feed.read_feed(database, tenant, after, LIMIT)
        assert all(item.position > after and item.event.tenant == tenant for item in found)
        assert large_scans(reads) == []
        journal = next(read for read in reads if "journal" in read.sql)
        assert set(journal.sorts) <= {"Incremental Sort"}  # of each act's own units
        if isinstance(database, PostgresConnection):
            assert journal.rows.get("act", 0) <= 4
    database.rollback()


def test_an_audit_of_a_file_grows_with_it_and_no_faster(tmp_path_factory: pytest.TempPathFactory) -> None:
    def audited(many: int) -> int:
        with fresh("sqlite memory", tmp_path_factory.mktemp("audit"), "") as connection:
            assert isinstance(connection, SqliteConnection)
            make_engine(connection, shipped()).send(Submit(work=(Work(task="mail"),) * many))
            with stepped(connection) as steps:
                assert not list(audit(connection, shipped()))
        return steps[0]

    none, some, more = audited(1), audited(200), audited(800)
    assert more - none <= 6 * (some - none)


@pytest.mark.parametrize("many", [20, 400])
def test_the_newest_events_cost_what_is_read_of_them(database: Connection, many: int) -> None:
    """However long the history of the unit is: the acts before are not read."""
    unit = ENGINE_IDS - many
    declare(database, 1)
    bear(database, unit, lifecycle="agent_run")
    with transaction(database):
        for _ in range(many // 2):
            move(database, unit, "fail")
            move(database, unit, "resume")
    version = place_of(database, unit)["version"]
    with watched(database) as reads:
        found = reads_of.read_events_beyond(database, unit, version - 3)
    assert [event.version for event in found] == [version - 2, version - 1, version]
    assert large_scans(reads) == []
    if isinstance(database, PostgresConnection):
        assert reads[-1].rows["act"] <= 2 * (3 + 1)
    newest = [event.version for event in reads_of.read_newest_events(database, unit, version)]
    assert newest == list(range(version, 0, -1))
