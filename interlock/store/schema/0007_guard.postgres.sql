-- Tenants see their own templates only, like everything else.
GRANT SELECT, INSERT, UPDATE, DELETE ON template TO interlock_app, interlock_system;
ALTER TABLE template ENABLE ROW LEVEL SECURITY;
ALTER TABLE template FORCE ROW LEVEL SECURITY;
CREATE POLICY declared ON template USING (tenant = ANY ((SELECT declared_tenants())::integer[]))
    WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]));
CREATE POLICY everybody ON template TO interlock_system USING (true) WITH CHECK (true);
