-- Tenants see only how often they asked themselves, like everything else.
ALTER TABLE asked ENABLE ROW LEVEL SECURITY;
ALTER TABLE asked FORCE ROW LEVEL SECURITY;
CREATE POLICY declared ON asked USING (tenant = ANY ((SELECT declared_tenants())::integer[]))
    WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]));
