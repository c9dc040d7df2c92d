-- What was done again, and by which unit last.
CREATE INDEX body_retry_of ON body (tenant, retry_of, unit) WHERE retry_of IS NOT NULL;
