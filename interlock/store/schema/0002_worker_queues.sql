-- The queues that a worker has claimed from, as a JSON list: who asks why a unit waits is told whom it waits for.
ALTER TABLE worker ADD COLUMN queues TEXT NOT NULL DEFAULT '[]';
