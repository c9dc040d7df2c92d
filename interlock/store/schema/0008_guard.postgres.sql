-- Tenants see their own keys only, like everything else.
ALTER TABLE key ENABLE ROW LEVEL SECURITY;
ALTER TABLE key FORCE ROW LEVEL SECURITY;
CREATE POLICY declared ON key USING (tenant = ANY ((SELECT declared_tenants())::integer[]))
    WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]));
