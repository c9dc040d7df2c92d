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
    xid     BIGINT NOT NULL,                -- 0 where positions need no transaction
    pos     BIGINT NOT NULL
);

-- How often a beat of this worker has made a lease longer.
ALTER TABLE worker ADD COLUMN renewals BIGINT NOT NULL DEFAULT 0;

-- Dead letters, the last one first; other units are never in it.
CREATE INDEX unit_dead ON unit (tenant, changed_at, id) WHERE category = 'dead';
