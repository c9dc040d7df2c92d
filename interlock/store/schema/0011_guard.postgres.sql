-- Tenants see only what was counted of themselves, like everything else.
GRANT SELECT, INSERT, UPDATE, DELETE ON tally, tallied TO interlock_app, interlock_system;
ALTER TABLE tally ENABLE ROW LEVEL SECURITY;
ALTER TABLE tally FORCE ROW LEVEL SECURITY;
CREATE POLICY declared ON tally USING (tenant = ANY ((SELECT declared_tenants())::integer[]))
    WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]));
CREATE POLICY everybody ON tally TO interlock_system USING (true) WITH CHECK (true);
ALTER TABLE tallied ENABLE ROW LEVEL SECURITY;
ALTER TABLE tallied FORCE ROW LEVEL SECURITY;
CREATE POLICY declared ON tallied USING (tenant = ANY ((SELECT declared_tenants())::integer[]))
    WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]));
CREATE POLICY everybody ON tallied TO interlock_system USING (true) WITH CHECK (true);
