-- Since layout 6: median of the cycles per block and microsecond over the accepted launches of an attempt, its relative standard
-- error, and 1 for an attempt that was accepted until later collections showed that its clock was low. Attempts of earlier
-- layouts have no cycles.
ALTER TABLE attempts ADD COLUMN cycle_rate REAL;
ALTER TABLE attempts ADD COLUMN cycle_rate_error REAL;
ALTER TABLE attempts ADD COLUMN is_withdrawn INTEGER NOT NULL DEFAULT 0;
