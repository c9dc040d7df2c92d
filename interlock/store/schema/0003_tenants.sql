-- How much of a tenant's work may be held by workers, and may wait, at a time; NULL: as much as there is.
ALTER TABLE tenant ADD COLUMN max_running INTEGER;
ALTER TABLE tenant ADD COLUMN max_waiting INTEGER;
ALTER TABLE tenant ADD COLUMN changed_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE tenant ADD COLUMN changed_by TEXT NOT NULL DEFAULT '';

-- What is held, tenant by tenant: a claim of a tenant that has a limit counts it.
DROP INDEX unit_holder;
CREATE INDEX unit_holder ON unit (tenant, holder, id) WHERE holder IS NOT NULL;
