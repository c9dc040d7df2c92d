-- Tenants see their own rates and schedules only, like everything else.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['token', 'schedule', 'skipped'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY declared ON %I USING (tenant = ANY ((SELECT declared_tenants())::integer[])) '
                       'WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]))', name);
    END LOOP;
END $$;
