-- Since layout 5: `OP State` and `Task Type` of the launches of an attempt. Attempts of earlier layouts have none.
ALTER TABLE attempts ADD COLUMN op_state TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN core TEXT NOT NULL DEFAULT '';
