-- Tenants see only what was counted of themselves, like everything else.
ALTER TABLE tally ENABLE ROW LEVEL SECURITY;
ALTER TABLE tally FORCE ROW LEVEL SECURITY;
CREATE POLICY declared ON tally USING (tenant = ANY ((SELECT declared_tenants())::integer[]))
    WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]));
ALTER TABLE tallied ENABLE ROW LEVEL SECURITY;
ALTER TABLE tallied FORCE ROW LEVEL SECURITY;
CREATE POLICY declared ON tallied USING (tenant = ANY ((SELECT declared_tenants())::integer[]))
    WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]));
