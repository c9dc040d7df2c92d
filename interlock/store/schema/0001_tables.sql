-- One text for both databases. Times are integer microseconds UTC, payloads are JSON text, truth is 0 or 1,
-- and no state of any lifecycle is named here. Only the position of an event differs between them.

-- What a store knows of itself. The epoch changes with every restore, because transaction ids start again.
CREATE TABLE about (
    name   TEXT PRIMARY KEY,
    value  TEXT NOT NULL
);

-- Ids are handed out in blocks: whoever raises next_id owns what lies between.
CREATE TABLE id_block (
    name     TEXT PRIMARY KEY,
    next_id  BIGINT NOT NULL
);
INSERT INTO id_block (name, next_id) VALUES ('unit', 1);

-- Every listed hop of every lifecycle: what the guard compares with. Birth has the source ''.
CREATE TABLE edge (
    lifecycle      TEXT NOT NULL,
    source         TEXT NOT NULL,
    trigger        TEXT NOT NULL,
    target         TEXT NOT NULL,
    opens_attempt  INTEGER NOT NULL,
    PRIMARY KEY (lifecycle, source, trigger, target)
);

CREATE TABLE tenant (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    created_at  BIGINT NOT NULL
);
INSERT INTO tenant (id, name, created_at) VALUES (1, 'default', 0);

-- A lane is a queue of one tenant together with what it asks of a worker (sorted, joined by commas).
-- Its id begins with the tenant, so that the lanes of a tenant lie together in the claim index.
CREATE TABLE lane (
    id            BIGINT PRIMARY KEY,
    tenant        INTEGER NOT NULL,
    queue         TEXT NOT NULL,
    capabilities  TEXT NOT NULL,
    UNIQUE (tenant, queue, capabilities),
    CHECK (id > tenant * 4294967296 AND id < (tenant + 1) * 4294967296)
);

-- The hot row of a unit: what verbs read and write. Everything else is in its body.
CREATE TABLE unit (
    id            BIGINT PRIMARY KEY,
    tenant        INTEGER NOT NULL,
    lane          BIGINT NOT NULL,
    lifecycle     TEXT NOT NULL,
    state         TEXT NOT NULL,
    category      TEXT NOT NULL,            -- of the state
    outcome       TEXT,                     -- the category in which it settled; kept when it is closed
    version       INTEGER NOT NULL,         -- counts its events
    head          TEXT NOT NULL,            -- the hash of the last one
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
    fence         INTEGER NOT NULL,         -- counts grants
    lease         TEXT,                     -- the state of the last lease
    lease_hash    TEXT,
    holder        BIGINT,                   -- the worker
    lease_until   BIGINT,
    lease_ttl     BIGINT,
    lease_beat    BIGINT,
    asked_at      BIGINT,                   -- a cancel was asked for
    asked_by      BIGINT,                   -- and is forced then
    parent        BIGINT,
    decides       INTEGER NOT NULL,         -- critical, or required, to its parent
    unmet         INTEGER NOT NULL,         -- needs that have not succeeded
    total         INTEGER NOT NULL,         -- its children, as far as a verdict reads them
    succeeded     INTEGER NOT NULL,
    lost          INTEGER NOT NULL,
    decided       INTEGER NOT NULL,         -- lost ones that decide
    deciders      INTEGER NOT NULL,         -- those that decide, whatever came of them
    won           INTEGER NOT NULL,         -- succeeded ones that decide
    gates         INTEGER NOT NULL,
    blocked       INTEGER NOT NULL,
    begun         INTEGER NOT NULL
);
CREATE INDEX unit_claim ON unit (lane, priority DESC, available_at, id) WHERE available_at IS NOT NULL;
CREATE INDEX unit_wake ON unit (tenant, wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX unit_parked ON unit (tenant, parked_on, priority DESC, id) WHERE parked_on IS NOT NULL;
CREATE INDEX unit_parent ON unit (parent, outcome, id) WHERE parent IS NOT NULL;
CREATE INDEX unit_holder ON unit (holder, id) WHERE holder IS NOT NULL;

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
    replaced_by  BIGINT
);
CREATE UNIQUE INDEX one_unit_a_key ON body (tenant, task, key) WHERE key IS NOT NULL;

-- One row a move, for ever. (unit, version) is its identity; pos is the order in which readers see them.
CREATE TABLE event (
    {pos},
    unit         BIGINT NOT NULL,
    version      INTEGER NOT NULL,
    tenant       INTEGER NOT NULL,
    lifecycle    TEXT NOT NULL,
    trigger      TEXT NOT NULL,
    source       TEXT,                      -- NULL: birth
    target       TEXT NOT NULL,
    lease_from   TEXT,                      -- the hop of its lease, if it made one
    lease_to     TEXT,
    attempt      INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    name         TEXT NOT NULL,             -- the document's own name for it
    severity     TEXT NOT NULL,
    at           BIGINT NOT NULL,
    actor        TEXT NOT NULL,
    reason       TEXT NOT NULL,
    cause        TEXT,
    correlation  TEXT NOT NULL,
    trace        TEXT NOT NULL,
    payload      TEXT NOT NULL,
    hash         TEXT NOT NULL,
    UNIQUE (unit, version)
);
CREATE INDEX event_time ON event (unit, at);
CREATE INDEX event_name ON event (tenant, name, at);
CREATE INDEX event_correlation ON event (tenant, correlation);

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
CREATE UNIQUE INDEX one_note_a_name ON note (unit, kind, name) WHERE kind IN ('vote', 'step', 'compensation');
CREATE INDEX note_expires ON note (tenant, expires) WHERE expires IS NOT NULL;

CREATE TABLE need (
    unit    BIGINT NOT NULL,
    needs   BIGINT NOT NULL,
    tenant  INTEGER NOT NULL,
    PRIMARY KEY (unit, needs)
);
CREATE INDEX need_reverse ON need (needs, unit);

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
    claim_nonce   TEXT,
    UNIQUE (tenant, name, incarnation)
);

-- A mutex, a limit or a rate: at most so many of the units that name it are available or held.
CREATE TABLE slot (
    tenant    INTEGER NOT NULL,
    key       TEXT NOT NULL,
    capacity  INTEGER NOT NULL,
    taken     INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
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

-- What retention has taken out: an event may be deleted only if its unit is here.
CREATE TABLE archived (
    unit     BIGINT PRIMARY KEY,
    tenant   INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    head     TEXT NOT NULL,
    file     TEXT NOT NULL,
    digest   TEXT NOT NULL,
    at       BIGINT NOT NULL
);
