-- Of a claim's nonce only a hash is kept: whoever knew the nonce could compute every lease of the claim.
ALTER TABLE worker DROP COLUMN claim_nonce;
ALTER TABLE worker ADD COLUMN claim_nonce_hash TEXT;

-- Whether the target of this hop is an end: only what has ended is archived.
ALTER TABLE edge ADD COLUMN settles INTEGER NOT NULL DEFAULT 0;

-- What an operator may force: an event with the trigger 'force' is taken only if this says the same.
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
