-- Since layout 11: `Op Name` of the launches of an attempt, without numbers. Attempts of earlier layouts have none until they are
-- assessed again.
ALTER TABLE attempts ADD COLUMN operator TEXT NOT NULL DEFAULT '';
