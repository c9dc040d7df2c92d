-- How many handlers a worker runs at a time; what it may hold is more, because some wait and some are not reported yet.
ALTER TABLE worker ADD COLUMN concurrency INTEGER NOT NULL DEFAULT 0;
