-- What a key's holder is besides a name: roles by which approvals know who may vote. Keys of before have none.
ALTER TABLE key ADD COLUMN roles TEXT NOT NULL DEFAULT '';   -- sorted, joined by commas
