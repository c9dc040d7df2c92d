-- Counts how often something that a worker holds was stopped or taken by somebody else: it is to ask at once.
ALTER TABLE worker ADD COLUMN summons INTEGER NOT NULL DEFAULT 0;
