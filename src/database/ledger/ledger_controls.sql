-- Since layout 9: launches of the control kernels at the ends of each collection: the durations after the warm-up in nanoseconds, as
-- JSON, and the median of the cycles per block and microsecond with its relative standard error. Collections of earlier layouts
-- have none.
CREATE TABLE controls (
    collection       INTEGER NOT NULL REFERENCES collections,
    device           INTEGER NOT NULL,
    control          TEXT NOT NULL,
    position         TEXT NOT NULL CHECK (position IN ('begin', 'end')),
    kernel           TEXT NOT NULL,
    durations_ns     TEXT NOT NULL,
    cycle_rate       REAL,
    cycle_rate_error REAL,
    PRIMARY KEY (collection, device, control, position)
) STRICT, WITHOUT ROWID;
