-- Tenants see their own templates only, like everything else.
ALTER TABLE template ENABLE ROW LEVEL SECURITY;
ALTER TABLE template FORCE ROW LEVEL SECURITY;
CREATE POLICY declared ON template USING (tenant = ANY ((SELECT declared_tenants())::integer[]))
    WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]));
