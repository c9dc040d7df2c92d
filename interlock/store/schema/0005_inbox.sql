-- What rests, by lifecycle and state: the inbox finds there whatever waits for a person. Jobs are hardly ever in it.
CREATE INDEX unit_rests ON unit (tenant, lifecycle, state, id) WHERE category IN ('gate', 'waiting');
