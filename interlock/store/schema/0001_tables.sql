-- One text for both databases. Times are integer microseconds UTC, payloads are JSON text, digests are hexadecimal,
-- truth is 0 or 1, and no state of any lifecycle is named here. Lists are arrays on PostgreSQL and JSON on SQLite.

-- What a store knows of itself. The epoch and the generation change with every restore: transactions are counted anew.
CREATE TABLE about (
    name   TEXT PRIMARY KEY,
    value  TEXT NOT NULL
);
INSERT INTO about (name, value) VALUES ('generation', '0');

-- Ids are handed out in blocks: whoever raises next_id owns what lies between.
CREATE TABLE id_block (
    name     TEXT PRIMARY KEY,
    next_id  BIGINT NOT NULL
);
INSERT INTO id_block (name, next_id) VALUES ('unit', 1);

-- Every listed transition of every lifecycle, the lease's too. Birth has the source ''. An edge never changes: with
-- another name or severity it is another edge, and the old one is retired.
CREATE TABLE edge (
    lifecycle      TEXT NOT NULL,
    source         TEXT NOT NULL,
    trigger        TEXT NOT NULL,
    target         TEXT NOT NULL,
    name           TEXT NOT NULL,           -- of the event
    severity       TEXT NOT NULL,
    opens_attempt  INTEGER NOT NULL,
    category       TEXT NOT NULL,           -- of the target
    retired        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (lifecycle, source, trigger, target, name, severity, opens_attempt, category)
);

-- What one act can make of a unit: listed hops, made at once. Everything but the first columns is derived from them by a
-- trigger, which refuses a path that is not listed. Its id is cut from its digest.
CREATE TABLE transition_path (
    id          BIGINT PRIMARY KEY,
    told        TEXT NOT NULL,              -- JSON: lifecycle, category, outcome, started, forced, hops
    digest      TEXT NOT NULL,           -- of that text
    lifecycle   TEXT NOT NULL DEFAULT '',
    source      TEXT NOT NULL DEFAULT '',
    target      TEXT NOT NULL DEFAULT '',
    category    TEXT,                       -- NULL: as it was
    outcome     INTEGER NOT NULL DEFAULT 0, -- 0: none, 1: the category, 2: as it was
    started     INTEGER NOT NULL DEFAULT 0, -- started_at is 0: kept, 1: set if it is not, 2: cleared, 3: set anew
    hops        INTEGER NOT NULL DEFAULT 0,
    payload_hop INTEGER NOT NULL DEFAULT 0, -- the last one of the unit itself: it has the payload
    opens       INTEGER NOT NULL DEFAULT 0, -- attempts
    grants      INTEGER NOT NULL DEFAULT 0, -- leases
    lease_from  TEXT,                       -- the state in which the lease must be; NULL: in any
    lease_to    TEXT,                       -- in which it leaves it; NULL: as it was
    lease_ends  INTEGER NOT NULL DEFAULT 0, -- the lease 0: goes on, 1: is taken from its holder, 2: has been finished by it
    forced      INTEGER NOT NULL DEFAULT 0,
    retired     INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE path_hop (
    path        BIGINT NOT NULL,
    place       INTEGER NOT NULL,           -- from 1 on
    trigger     TEXT NOT NULL,
    source      TEXT NOT NULL,
    target      TEXT NOT NULL,
    name        TEXT NOT NULL,
    severity    TEXT NOT NULL,
    attempt     INTEGER NOT NULL,           -- how many were opened up to here
    fence       INTEGER NOT NULL,           -- and granted
    lease_from  TEXT,
    lease_to    TEXT,
    PRIMARY KEY (path, place)
);

-- Which path a command takes from a state, under a lease in that state ('': none is asked for).
CREATE TABLE command_path (
    lifecycle  TEXT NOT NULL,
    state      TEXT NOT NULL,
    lease      TEXT NOT NULL,
    command    TEXT NOT NULL,               -- triggers of the unit with those of the lease, as claim/grant
    path       BIGINT NOT NULL,
    PRIMARY KEY (lifecycle, state, lease, command)
);

CREATE TABLE tenant (
    id            INTEGER PRIMARY KEY,
    name          TEXT NOT NULL UNIQUE,
    created_at    BIGINT NOT NULL,
    max_running   INTEGER,                  -- units that workers hold at a time; NULL: no limit
    max_waiting   INTEGER,
    changed_at    BIGINT NOT NULL DEFAULT 0,
    changed_by    TEXT NOT NULL DEFAULT '',
    max_requests  INTEGER,                  -- of the server, a minute
    keep_beats_us    BIGINT,                -- how long its beats and its other verbose notes are kept; NULL: two days,
    keep_verbose_us  BIGINT                 -- and fourteen
);
INSERT INTO tenant (id, name, created_at) VALUES (1, 'default', 0);

-- A lane is a queue of one tenant together with what it asks of a worker: the task that it must know ('': none), and
-- capabilities (sorted, joined by commas).
-- Its id begins with the tenant, so that the lanes of a tenant lie together in the claim index.
CREATE TABLE lane (
    id            BIGINT PRIMARY KEY,
    tenant        INTEGER NOT NULL,
    queue         TEXT NOT NULL,
    capabilities  TEXT NOT NULL,
    task          TEXT NOT NULL DEFAULT '',
    UNIQUE (tenant, queue, capabilities, task),
    CHECK (id > tenant * 4294967296 AND id < (tenant + 1) * 4294967296)
);

-- The hot row of a unit: what verbs read and write. Everything else is in its body.
-- No index may name a column that every move changes, not even in its WHERE: such an update would never stay on its page.
CREATE TABLE unit (
    id            BIGINT PRIMARY KEY,
    tenant        INTEGER NOT NULL,
    lane          BIGINT NOT NULL,
    lifecycle     TEXT NOT NULL,
    state         TEXT NOT NULL,
    category      TEXT NOT NULL,            -- of the state
    outcome       TEXT,                     -- the category in which it settled; kept when it is closed
    version       INTEGER NOT NULL,         -- counts its events
    act           BIGINT NOT NULL,          -- the last one that moved it
    born          BIGINT NOT NULL,          -- the first one
    changed_at    BIGINT NOT NULL,
    started_at    BIGINT,                   -- of the current attempt
    priority      INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    failures      INTEGER NOT NULL,
    losses        INTEGER NOT NULL,
    snoozes       INTEGER NOT NULL,
    available_at  BIGINT,                   -- set exactly while it may be claimed
    wake_at       BIGINT,                   -- set exactly while time must look at it: the earliest of its clocks
    due_at        BIGINT,                   -- when a delay or a backoff ends
    deadline_at   BIGINT,                   -- when the clock of its state runs out
    parked_on     TEXT,                     -- the key whose release makes it available
    rests_in      TEXT,                     -- its state, by which lists find it: set exactly while it waits for a
                                            -- verdict, a plan or a need, is closing, or has not succeeded
    dead_at       BIGINT,                   -- set exactly while it is a dead letter
    fence         INTEGER NOT NULL,         -- counts grants
    lease         TEXT,                     -- the state of the last lease
    lease_id      BIGINT,                   -- of the lease that is live
    holder        BIGINT,                   -- its worker
    lease_until   BIGINT,                   -- when the last lease that is over would have ended
    lease_hash    TEXT,                     -- of the secret of the lease that is live
    asked_at      BIGINT,                   -- a cancel was asked for
    asked_by      BIGINT,                   -- and is forced then
    parent        BIGINT,
    decides       INTEGER NOT NULL,         -- critical, or required, to its parent
    unmet         INTEGER NOT NULL,         -- needs that are not met
    total         INTEGER NOT NULL,         -- its children, as far as a verdict reads them
    succeeded     INTEGER NOT NULL,
    lost          INTEGER NOT NULL,
    decided       INTEGER NOT NULL,         -- lost ones that decide
    deciders      INTEGER NOT NULL,         -- those that decide, whatever came of them
    won           INTEGER NOT NULL,         -- succeeded ones that decide
    gates         INTEGER NOT NULL,
    blocked       INTEGER NOT NULL,
    begun         INTEGER NOT NULL,
    cost          BIGINT NOT NULL,          -- in millionths, of all below it too
    plain         INTEGER NOT NULL DEFAULT 0, -- 1: nothing follows from its grant and its success but its own events
    CHECK (available_at IS NULL OR (lease_id IS NULL AND outcome IS NULL))
);
CREATE INDEX unit_claim ON unit (lane, priority DESC, available_at, id) WHERE available_at IS NOT NULL;
CREATE INDEX unit_wake ON unit (tenant, wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX unit_parked ON unit (tenant, parked_on, priority DESC, id) WHERE parked_on IS NOT NULL;
CREATE INDEX unit_parent ON unit (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX unit_rests ON unit (tenant, lifecycle, rests_in, born, id) WHERE rests_in IS NOT NULL;
CREATE INDEX unit_dead ON unit (tenant, dead_at, id) WHERE dead_at IS NOT NULL;

-- The rest of a unit: written at birth and at its end.
CREATE TABLE body (
    unit         BIGINT PRIMARY KEY,
    tenant       INTEGER NOT NULL,
    task         TEXT NOT NULL,             -- the type of work
    key          TEXT,
    created_at   BIGINT NOT NULL,
    input        TEXT NOT NULL,
    result       TEXT,
    error        TEXT,
    labels       TEXT NOT NULL,
    policy       TEXT NOT NULL,             -- what differs from the lifecycle's own rules
    correlation  TEXT NOT NULL,
    trace        TEXT NOT NULL,
    mutex        TEXT,
    limit_key    TEXT,
    retry_of     BIGINT,
    replaced_by  BIGINT,
    rate_key     TEXT
);
CREATE UNIQUE INDEX one_unit_a_key ON body (tenant, task, key) WHERE key IS NOT NULL;
CREATE INDEX body_retry_of ON body (tenant, retry_of, unit) WHERE retry_of IS NOT NULL;
CREATE INDEX body_correlation ON body (tenant, correlation);

-- One row for all units that one transaction takes along the same path from the same place: version, attempt and fence
-- are those before it. Its trigger moves them, and it is the only one that does. Never changed.
CREATE TABLE act (
    id           {act_id},  -- its place in the order in which readers see acts
    tenant       INTEGER NOT NULL,
    path         BIGINT NOT NULL,
    path_digest  TEXT NOT NULL,
    version      INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    at           BIGINT NOT NULL,
    actor        TEXT NOT NULL,
    reason       TEXT NOT NULL,             -- '': the trigger of the hop
    cause        TEXT,
    payload      TEXT NOT NULL,             -- of the last hop
    available    INTEGER NOT NULL,          -- whether its units may be claimed from then on
    worker       BIGINT,                    -- whose lease it grants, and on which terms
    ttl          BIGINT,
    beat         BIGINT,
    until        BIGINT,                    -- when the lease ends that it grants, or would have ended that it ends
    units        {ids} NOT NULL,            -- 1 to 1,000, each once
    before       {ids} NOT NULL,            -- the act that each comes from; 0: it is born
    leases       {ids},                     -- the live lease that each is under; NULL: none is
    secrets      {hashes},                  -- of the leases that it grants, hashed
    details      {hashes},                  -- digests of what is kept of each unit apart: act_detail, results
    digest       {digest}
);
-- What was done, by kind and time: a path stands for the names of its events.
CREATE INDEX act_path ON act (tenant, path, at, id);

CREATE INDEX act_tenant ON act (tenant, id);

-- Acts that have left the database with the last of their units: what seals need of them.
CREATE TABLE act_gone (
    id      BIGINT PRIMARY KEY,
    tenant  INTEGER NOT NULL,
    digest  TEXT NOT NULL
);
CREATE INDEX act_gone_tenant ON act_gone (tenant, id);

-- What is told of one unit of an act alone: an error, a cost. Bound by the digest in the act, so that it may be dropped.
CREATE TABLE act_detail (
    act      BIGINT NOT NULL,
    unit     BIGINT NOT NULL,
    tenant   INTEGER NOT NULL,
    payload  TEXT NOT NULL,
    PRIMARY KEY (act, unit)
);

-- A worker's right to speak for units, each with a secret of its own. Its id is that of the act that granted it, which
-- writes one row for all of them; the last unit that leaves it takes it away. A unit whose lease ends at another time than
-- the others' has a row of its own: one that was renewed without the others, or not with them, and one whose lease was
-- taken from its holder, which is kept for a day. Only acts write rows, and whoever renews.
CREATE TABLE lease (
    id        BIGINT NOT NULL,
    unit      BIGINT NOT NULL,           -- 0: the row of all units that have none of their own
    tenant    INTEGER NOT NULL,
    worker    BIGINT NOT NULL,
    secret    TEXT NOT NULL,             -- the hash of it; of many: '', their own rows have theirs
    until     BIGINT NOT NULL,
    ttl       BIGINT NOT NULL,
    beat      BIGINT NOT NULL,
    ended_at  BIGINT,
    units     INTEGER NOT NULL DEFAULT 1, -- of a row for many: how many are under the lease, with those that have their own
    PRIMARY KEY (unit, id)
);
CREATE INDEX lease_apart ON lease (id) WHERE unit > 0 AND ended_at IS NULL;
CREATE INDEX lease_until ON lease (tenant, until, unit) WHERE ended_at IS NULL;
CREATE INDEX lease_worker ON lease (tenant, worker, unit) WHERE ended_at IS NULL;
CREATE INDEX lease_ended ON lease (tenant, ended_at) WHERE ended_at IS NOT NULL;

-- A chain over the acts of a tenant, in the order of their ids, written after they are committed: writers share no row.
CREATE TABLE seal (
    tenant     INTEGER NOT NULL,
    number     BIGINT NOT NULL,             -- from 1 on
    first_act  BIGINT NOT NULL,
    last_act   BIGINT NOT NULL,
    acts       BIGINT NOT NULL,             -- how many it covers
    root       TEXT NOT NULL,            -- over the root before it and the digests of its acts
    at         BIGINT NOT NULL,
    PRIMARY KEY (tenant, number)
);

-- What is remembered but moves nothing. `name` makes a vote one a voter and a step result one a step.
CREATE TABLE note (
    id       BIGINT PRIMARY KEY,
    tenant   INTEGER NOT NULL,
    unit     BIGINT NOT NULL,               -- for a beat: the worker
    kind     TEXT NOT NULL,
    name     TEXT NOT NULL,
    fence    INTEGER NOT NULL,
    at       BIGINT NOT NULL,
    expires  BIGINT,
    payload  TEXT NOT NULL
);
CREATE INDEX note_unit ON note (unit, kind, name);
CREATE UNIQUE INDEX one_note_a_name ON note (unit, kind, name) WHERE kind IN ('vote', 'step', 'compensation', 'child', 'signal', 'checked', 'effect_result');
CREATE INDEX note_expires ON note (tenant, expires) WHERE expires IS NOT NULL;
CREATE INDEX note_beat ON note (unit, at, id) WHERE kind = 'beat';

-- What a unit needs before it may begin: the success of another one, or only its end.
CREATE TABLE need (
    unit    BIGINT NOT NULL,
    needs   BIGINT NOT NULL,
    tenant  INTEGER NOT NULL,
    by_end  INTEGER NOT NULL DEFAULT 0,     -- met by its end, whatever came of it
    PRIMARY KEY (unit, needs)
);
CREATE INDEX need_reverse ON need (needs, unit);

-- The names of children in their parents. A name that is needed before its child comes has the id that the child will
-- have, so that a need always names an id.
CREATE TABLE place (
    parent  BIGINT NOT NULL,
    name    TEXT NOT NULL,
    unit    BIGINT NOT NULL,
    tenant  INTEGER NOT NULL,
    PRIMARY KEY (parent, name)
);
CREATE UNIQUE INDEX one_place_a_unit ON place (unit);

-- What a worker is beside its unit row: who it says it is, what it can do, when it was heard.
CREATE TABLE worker (
    unit          BIGINT PRIMARY KEY,
    tenant        INTEGER NOT NULL,
    name          TEXT NOT NULL,
    incarnation   TEXT NOT NULL,
    capabilities  TEXT NOT NULL,
    capacity      INTEGER NOT NULL,
    holding       INTEGER NOT NULL,
    draining      INTEGER NOT NULL,
    seen_at       BIGINT NOT NULL,
    claim_key     TEXT,                     -- of its last claim, so that a replay finds its leases
    queues        TEXT NOT NULL DEFAULT '[]',  -- those that it has claimed from, a JSON list
    summons       INTEGER NOT NULL DEFAULT 0,  -- how often somebody else stopped or took what it holds
    renewals      BIGINT NOT NULL DEFAULT 0,   -- how often a heartbeat made a lease longer
    claim_nonce_hash TEXT,
    concurrency   INTEGER NOT NULL DEFAULT 0,  -- how many handlers it runs at a time; 0: it did not say
    tasks         TEXT,                     -- those that it knows, a JSON list; NULL: it takes any
    completions   BIGINT NOT NULL DEFAULT 0,   -- how many leases ended by its own word, whatever came of the unit
    UNIQUE (tenant, name, incarnation)
);

-- A mutex, a limit, a rate or a resource: at most so much of it is taken by units that are available or held.
CREATE TABLE slot (
    tenant    INTEGER NOT NULL,
    key       TEXT NOT NULL,
    capacity  INTEGER NOT NULL,
    taken     INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
);

-- A token of a rate that is away: it was spent on one grant, and comes back then.
CREATE TABLE token (
    unit     BIGINT NOT NULL,
    fence    INTEGER NOT NULL,
    tenant   INTEGER NOT NULL,
    key      TEXT NOT NULL,                 -- of its slot
    back_at  BIGINT NOT NULL,
    PRIMARY KEY (unit, fence, key)
);
CREATE INDEX token_back ON token (tenant, back_at);

-- What makes units by the clock. Any process may make them: the row is locked, and next_at moves on with it.
CREATE TABLE schedule (
    tenant      INTEGER NOT NULL,
    name        TEXT NOT NULL,
    timing      TEXT NOT NULL,              -- a cron expression, or 'every 5m'
    timezone    TEXT NOT NULL,
    overlap     TEXT NOT NULL,              -- when the last one has not ended: skip, queue, replace or allow
    missed      TEXT NOT NULL,              -- after a downtime: none, one or all
    work        TEXT NOT NULL,              -- the unit that it makes
    digest      TEXT NOT NULL,              -- of all of the above
    defined_at  BIGINT NOT NULL,
    next_at     BIGINT,                     -- NULL while it is paused
    last_at     BIGINT,                     -- the last instant that a unit was made for
    last_unit   BIGINT,
    paused_at   BIGINT,
    paused_by   TEXT,
    pause_note  TEXT,                       -- why
    removed_at  BIGINT,                     -- it makes nothing and is not listed
    removed_by  TEXT,
    remove_note TEXT,
    PRIMARY KEY (tenant, name)
);
CREATE INDEX schedule_next ON schedule (tenant, next_at, name) WHERE next_at IS NOT NULL;

-- Instants of a schedule for which no unit was made: `count` of them from the first to the last, and why.
CREATE TABLE skipped (
    id        BIGINT PRIMARY KEY,
    tenant    INTEGER NOT NULL,
    schedule  TEXT NOT NULL,
    first_at  BIGINT NOT NULL,
    last_at   BIGINT NOT NULL,
    count     INTEGER NOT NULL,
    reason    TEXT NOT NULL,
    at        BIGINT NOT NULL,
    expires   BIGINT NOT NULL
);
CREATE INDEX skipped_schedule ON skipped (tenant, schedule, id);
CREATE INDEX skipped_expires ON skipped (tenant, expires);

-- What is paused: a queue, a task, a unit with all below it, or all that depends on something which is away. Of it
-- nothing is granted until the row has ended. Rows are kept, because they say who paused what.
CREATE TABLE pause (
    id        BIGINT PRIMARY KEY,
    tenant    INTEGER NOT NULL,
    kind      TEXT NOT NULL,                -- queue, task, unit or outage
    name      TEXT NOT NULL,                -- of the queue, the task or what is away; of a unit, its number
    unit      BIGINT,                       -- NULL unless it is one
    since     BIGINT NOT NULL,              -- nothing is granted later than that
    until     BIGINT,                       -- NULL: until somebody ends it; of an outage: when time looks at it
    actor     TEXT NOT NULL,
    reason    TEXT NOT NULL,
    ended_at  BIGINT,
    ended_by  TEXT,
    live      INTEGER NOT NULL,             -- 0: it has ended, and no unit is parked on it any more
    detail    TEXT NOT NULL,                -- of an outage, JSON: when it is tried next, and who is let through
    act       BIGINT NOT NULL               -- the last one before it, whatever the clocks said; 0 of an outage
);
CREATE UNIQUE INDEX pause_name ON pause (tenant, kind, name) WHERE ended_at IS NULL;
CREATE INDEX pause_live ON pause (tenant, id) WHERE live = 1;

-- The steps of a workflow. A version never changes: a run keeps the one that it began with.
CREATE TABLE template (
    tenant      INTEGER NOT NULL,
    name        TEXT NOT NULL,
    version     INTEGER NOT NULL,
    steps       TEXT NOT NULL,              -- a JSON list of pieces of work, each with its name as `ref`
    digest      TEXT NOT NULL,              -- of the steps
    defined_at  BIGINT NOT NULL,
    PRIMARY KEY (tenant, name, version)
);

-- The answer to a request that carried a key, so that the same request gets the same answer.
CREATE TABLE answer (
    tenant   INTEGER NOT NULL,
    scope    TEXT NOT NULL,
    key      TEXT NOT NULL,
    request  TEXT NOT NULL,                 -- its hash
    answer   TEXT NOT NULL,
    unit     BIGINT,
    expires  BIGINT NOT NULL,
    PRIMARY KEY (tenant, scope, key)
);
CREATE INDEX answer_expires ON answer (expires);

CREATE TABLE artifact (
    unit     BIGINT NOT NULL,
    attempt  INTEGER NOT NULL,
    name     TEXT NOT NULL,
    tenant   INTEGER NOT NULL,
    fence    INTEGER NOT NULL,
    at       BIGINT NOT NULL,
    digest   TEXT NOT NULL,
    data     TEXT NOT NULL,
    PRIMARY KEY (unit, attempt, name)
);

CREATE TABLE log (
    unit     BIGINT NOT NULL,
    attempt  INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    tenant   INTEGER NOT NULL,
    at       BIGINT NOT NULL,
    line     TEXT NOT NULL,
    PRIMARY KEY (unit, attempt, number)
);

-- What retention has taken out: a unit may be deleted only if it is here. Its file holds it, and the acts that moved it.
CREATE TABLE archived (
    unit     BIGINT PRIMARY KEY,
    tenant   INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    born     BIGINT NOT NULL,               -- its first act
    head     TEXT NOT NULL,                 -- the digest of its last one
    file     TEXT NOT NULL,
    digest   TEXT NOT NULL,
    at       BIGINT NOT NULL
);
-- What an operator may force: a forced act is taken only if this says the same of each of its units.
CREATE TABLE forced_move (
    unit     BIGINT NOT NULL,
    version  INTEGER NOT NULL,              -- of the event
    tenant   INTEGER NOT NULL,
    target   TEXT NOT NULL,
    actor    TEXT NOT NULL,
    reason   TEXT NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (unit, version)
);

-- Keys by which programs across the network speak for a tenant. Of a secret only its digest is here.
CREATE TABLE key (
    id          BIGINT PRIMARY KEY,
    tenant      INTEGER NOT NULL,
    name        TEXT NOT NULL,
    digest      TEXT NOT NULL,
    scopes      TEXT NOT NULL,              -- sorted, joined by commas
    created_at  BIGINT NOT NULL,
    created_by  TEXT NOT NULL,
    expires_at  BIGINT,                     -- NULL: never
    rotated_at  BIGINT,
    revoked_at  BIGINT,
    revoked_by  TEXT,
    roles       TEXT NOT NULL DEFAULT ''    -- by which approvals know who may vote; sorted, joined by commas
);
CREATE INDEX key_tenant ON key (tenant, id);

-- How often it has asked in the last minute in which it asked at all, whichever server it asked.
CREATE TABLE asked (
    tenant  INTEGER PRIMARY KEY,
    minute  BIGINT NOT NULL,
    count   INTEGER NOT NULL
);

-- What was counted for one metric and its labels, of all events up to where its tenant has been counted.
CREATE TABLE tally (
    tenant  INTEGER NOT NULL,
    name    TEXT NOT NULL,
    labels  TEXT NOT NULL,                  -- a JSON list of words
    value   BIGINT NOT NULL,
    PRIMARY KEY (tenant, name, labels)
);

-- Up to which event a tenant has been counted. Whoever counts on must have begun here.
CREATE TABLE tallied (
    tenant  INTEGER PRIMARY KEY,
    epoch   TEXT NOT NULL,                  -- of the store
    act     BIGINT NOT NULL,
    place   BIGINT NOT NULL
);

-- The same by minute and by hour, from the time of the events, for charts.
CREATE TABLE metric_minute (
    tenant   INTEGER NOT NULL,
    span     BIGINT NOT NULL,               -- how long it is: a minute or an hour
    metric   TEXT NOT NULL,
    at       BIGINT NOT NULL,               -- when it began
    label    TEXT NOT NULL,
    bucket   INTEGER NOT NULL,              -- of a time; else 0
    value    BIGINT NOT NULL,
    expires  BIGINT NOT NULL,
    PRIMARY KEY (tenant, span, metric, at, label, bucket)
);
CREATE INDEX metric_minute_expires ON metric_minute (tenant, expires);
