-- A unit that cannot be moved is withheld, although an event may be there that its row knows nothing of: that is why it
-- cannot be moved. So a row that is withheld is not asked for its events; but then it must say what it said before.

CREATE OR REPLACE FUNCTION guard_unit_update() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM new_rows AS n LEFT JOIN event
          ON event.unit = n.id AND event.version = n.version AND event.target = n.state AND event.hash = n.head
        WHERE event.unit IS NULL AND n.parked_on IS DISTINCT FROM 'withheld')
       OR EXISTS (
        SELECT 1 FROM new_rows AS n JOIN event ON event.unit = n.id AND event.version = n.version + 1
        WHERE n.parked_on IS DISTINCT FROM 'withheld')
    THEN PERFORM guard_refuses('event-first', 'the events of this unit do not lead to its state and version'); END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER guard_unit_withheld BEFORE UPDATE ON unit FOR EACH ROW
    WHEN (NEW.parked_on = 'withheld'
          AND (NEW.version <> OLD.version OR NEW.fence <> OLD.fence OR NEW.attempt <> OLD.attempt
               OR NEW.available_at IS NOT NULL))
    EXECUTE FUNCTION guard_says_no('withheld', 'a unit that is withheld neither moves nor may be claimed');
