-- How long a tenant's beats and its other verbose notes are kept; NULL: two days, and fourteen.
ALTER TABLE tenant ADD COLUMN keep_beats_us BIGINT;
ALTER TABLE tenant ADD COLUMN keep_verbose_us BIGINT;

-- The beats of a worker by time, for whoever asks what happened to a unit that it held.
CREATE INDEX note_beat ON note (unit, at, id) WHERE kind = 'beat';
