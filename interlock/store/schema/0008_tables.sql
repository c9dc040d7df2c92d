-- Keys by which programs across the network speak for a tenant. Of a secret only its digest is here.
CREATE TABLE key (
    id          BIGINT PRIMARY KEY,
    tenant      INTEGER NOT NULL,
    name        TEXT NOT NULL,
    digest      TEXT NOT NULL,
    scopes      TEXT NOT NULL,              -- sorted, joined by commas
    created_at  BIGINT NOT NULL,
    created_by  TEXT NOT NULL,
    expires_at  BIGINT,                     -- NULL: never
    rotated_at  BIGINT,
    revoked_at  BIGINT,
    revoked_by  TEXT
);
CREATE INDEX key_tenant ON key (tenant, id);
