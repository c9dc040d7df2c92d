-- How often a tenant may ask the server in a minute; NULL: as often as it likes.
ALTER TABLE tenant ADD COLUMN max_requests INTEGER;

-- How often it has asked in the last minute in which it asked at all, whichever server it asked.
CREATE TABLE asked (
    tenant  INTEGER PRIMARY KEY,
    minute  BIGINT NOT NULL,
    count   INTEGER NOT NULL
);
