-- What an act is known by. Every field has its length before it, so that no two acts are told alike.
-- What these functions call is bound when they are made: no search path stands in for it, nor lacks it in a restore.
CREATE FUNCTION digest_field(field bytea) RETURNS bytea LANGUAGE sql IMMUTABLE
    RETURN coalesce('\x01'::bytea || int4send(length(field)) || field, '\x00'::bytea);

CREATE FUNCTION act_digest(
    id bigint, tenant integer, path_digest text, version integer, attempt integer, fence integer, at bigint, actor text,
    reason text, cause text, payload text, available integer, worker bigint, ttl bigint, beat bigint, until bigint,
    units bigint[], before bigint[], leases bigint[], secrets text[], details text[])
    RETURNS text LANGUAGE sql IMMUTABLE
    RETURN encode(sha256(
        int8send(id) || int4send(tenant) || digest_field(convert_to(path_digest, 'UTF8')) || int4send(version) || int4send(attempt)
        || int4send(fence) || int8send(at) || digest_field(convert_to(actor, 'UTF8'))
        || digest_field(convert_to(reason, 'UTF8')) || digest_field(convert_to(cause, 'UTF8'))
        || digest_field(convert_to(payload, 'UTF8')) || int4send(available) || digest_field(int8send(worker))
        || digest_field(int8send(ttl)) || digest_field(int8send(beat)) || digest_field(int8send(until))
        || digest_field(array_send(units)) || digest_field(array_send(before)) || digest_field(array_send(leases))
        || digest_field(array_send(secrets)) || digest_field(array_send(details))), 'hex');

