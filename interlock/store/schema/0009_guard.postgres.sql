-- Tenants see only how often they asked themselves, like everything else.
GRANT SELECT, INSERT, UPDATE, DELETE ON asked TO interlock_app, interlock_system;
ALTER TABLE asked ENABLE ROW LEVEL SECURITY;
ALTER TABLE asked FORCE ROW LEVEL SECURITY;
CREATE POLICY declared ON asked USING (tenant = ANY ((SELECT declared_tenants())::integer[]))
    WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]));
CREATE POLICY everybody ON asked TO interlock_system USING (true) WITH CHECK (true);
