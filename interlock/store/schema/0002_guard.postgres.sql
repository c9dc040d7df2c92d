-- Tenants see their own rates and schedules only, like everything else.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['token', 'schedule', 'skipped'] LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO interlock_app, interlock_system', name);
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY declared ON %I USING (tenant = ANY ((SELECT declared_tenants())::integer[])) '
                       'WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]))', name);
        EXECUTE format('CREATE POLICY everybody ON %I TO interlock_system USING (true) WITH CHECK (true)', name);
    END LOOP;
END $$;
