-- Rates and schedules.

-- How often units of a name may begin: of a unit that is available the token is taken, of one that was granted it is away.
ALTER TABLE body ADD COLUMN rate_key TEXT;

-- A token that is away: it was spent on one grant, and comes back then.
CREATE TABLE token (
    unit     BIGINT NOT NULL,
    fence    INTEGER NOT NULL,
    tenant   INTEGER NOT NULL,
    key      TEXT NOT NULL,                 -- of its slot
    back_at  BIGINT NOT NULL,
    PRIMARY KEY (unit, fence)
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
