-- What an act is known by. Every field that may be of any length, or NULL, has a mark and its length before it, so that no
-- two acts are told alike. In PL/pgSQL, which keeps its plan: an SQL function with a search path of its own is planned
-- anew at each call.
CREATE FUNCTION act_digest(
    id bigint, tenant integer, path_digest text, version integer, attempt integer, fence integer, at bigint, actor text,
    reason text, cause text, payload text, available integer, worker bigint, ttl bigint, beat bigint, until bigint,
    units bigint[], before bigint[], leases bigint[], secrets text[], details text[])
    RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    path_bytes bytea := convert_to(path_digest, 'UTF8');
    actor_bytes bytea := convert_to(actor, 'UTF8');
    reason_bytes bytea := convert_to(reason, 'UTF8');
    cause_bytes bytea := convert_to(cause, 'UTF8');
    payload_bytes bytea := convert_to(payload, 'UTF8');
    unit_bytes bytea := array_send(units);
    before_bytes bytea := array_send(before);
    lease_bytes bytea := array_send(leases);
    secret_bytes bytea := array_send(secrets);
    detail_bytes bytea := array_send(details);
BEGIN
    RETURN encode(sha256(
        int8send(id) || int4send(tenant)
        || '\x01' || int4send(length(path_bytes)) || path_bytes
        || int4send(version) || int4send(attempt) || int4send(fence) || int8send(at)
        || '\x01' || int4send(length(actor_bytes)) || actor_bytes
        || '\x01' || int4send(length(reason_bytes)) || reason_bytes
        || coalesce('\x01' || int4send(length(cause_bytes)) || cause_bytes, '\x00')
        || '\x01' || int4send(length(payload_bytes)) || payload_bytes
        || int4send(available)
        || coalesce('\x0100000008' || int8send(worker), '\x00')
        || coalesce('\x0100000008' || int8send(ttl), '\x00')
        || coalesce('\x0100000008' || int8send(beat), '\x00')
        || coalesce('\x0100000008' || int8send(until), '\x00')
        || '\x01' || int4send(length(unit_bytes)) || unit_bytes
        || '\x01' || int4send(length(before_bytes)) || before_bytes
        || coalesce('\x01' || int4send(length(lease_bytes)) || lease_bytes, '\x00')
        || coalesce('\x01' || int4send(length(secret_bytes)) || secret_bytes, '\x00')
        || coalesce('\x01' || int4send(length(detail_bytes)) || detail_bytes, '\x00')), 'hex');
END $$;
