-- Tenants see their own keys only, like everything else.
GRANT SELECT, INSERT, UPDATE, DELETE ON key TO interlock_app, interlock_system;
ALTER TABLE key ENABLE ROW LEVEL SECURITY;
ALTER TABLE key FORCE ROW LEVEL SECURITY;
CREATE POLICY declared ON key USING (tenant = ANY ((SELECT declared_tenants())::integer[]))
    WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]));
CREATE POLICY everybody ON key TO interlock_system USING (true) WITH CHECK (true);
