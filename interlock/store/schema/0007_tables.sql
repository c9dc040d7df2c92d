-- Workflows.

-- What a unit has cost so far, in millionths: its own attempts, failed ones too, and all below it.
ALTER TABLE unit ADD COLUMN cost BIGINT NOT NULL DEFAULT 0;

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
