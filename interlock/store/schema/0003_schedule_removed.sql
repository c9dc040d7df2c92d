-- A schedule that was removed makes nothing and is not listed; that it was there, who removed it and why, stays.
ALTER TABLE schedule ADD COLUMN removed_at BIGINT;
ALTER TABLE schedule ADD COLUMN removed_by TEXT;
ALTER TABLE schedule ADD COLUMN remove_note TEXT;
