-- Under row-level security an audit and a tick find the tenants by these rows: one that is gone would hide all its work.
CREATE TRIGGER guard_tenant_identity BEFORE UPDATE ON tenant FOR EACH ROW WHEN (NEW.id <> OLD.id)
    EXECUTE FUNCTION guard_says_no('identity', 'the id of a tenant never changes');
CREATE TRIGGER guard_tenant_delete BEFORE DELETE ON tenant FOR EACH ROW
    EXECUTE FUNCTION guard_says_no('append-only', 'a tenant is never deleted: audits and ticks find its work by this row');
CREATE TRIGGER guard_tenant_truncate BEFORE TRUNCATE ON tenant FOR EACH STATEMENT EXECUTE FUNCTION guard_fixed();
