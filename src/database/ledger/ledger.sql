-- The ledger. Times are nanoseconds: instants since the epoch, or durations.
CREATE TABLE runs (
    run        TEXT PRIMARY KEY,
    kind       TEXT NOT NULL CHECK (kind IN ('npu', 'rehearsal')),
    seed       INTEGER NOT NULL,
    options    TEXT NOT NULL,
    host       TEXT NOT NULL,
    started_ns INTEGER NOT NULL,
    ended_ns   INTEGER,
    exit_code  INTEGER
) STRICT;

CREATE TABLE cases (
    case_id   TEXT PRIMARY KEY,
    kernel    TEXT NOT NULL,
    signature TEXT NOT NULL
) STRICT;

CREATE TABLE planned (
    run     TEXT NOT NULL REFERENCES runs,
    ordinal INTEGER NOT NULL,
    case_id TEXT NOT NULL REFERENCES cases,
    PRIMARY KEY (run, case_id)
) STRICT;

CREATE TABLE collections (
    collection INTEGER PRIMARY KEY,
    run        TEXT NOT NULL REFERENCES runs,
    number     INTEGER NOT NULL,
    device     INTEGER NOT NULL,
    started_ns INTEGER NOT NULL,
    ended_ns   INTEGER,
    outcome    TEXT,
    UNIQUE (run, number)
) STRICT;

CREATE TABLE attempts (
    attempt    INTEGER PRIMARY KEY,
    collection INTEGER NOT NULL REFERENCES collections,
    case_id    TEXT NOT NULL REFERENCES cases,
    launched   INTEGER NOT NULL,
    verdict    TEXT NOT NULL,
    reason     TEXT NOT NULL,
    counters   TEXT NOT NULL,
    UNIQUE (collection, case_id)
) STRICT;
CREATE INDEX attempts_by_case ON attempts (case_id);

-- Every launch that the profiler recorded.
CREATE TABLE launches (
    attempt     INTEGER NOT NULL REFERENCES attempts,
    number      INTEGER NOT NULL,
    is_measured INTEGER NOT NULL,
    is_accepted INTEGER NOT NULL,
    start_ns    INTEGER NOT NULL,
    duration_ns INTEGER NOT NULL,
    PRIMARY KEY (attempt, number)
) STRICT, WITHOUT ROWID;

-- A sample is a measured launch.
CREATE VIEW samples AS SELECT * FROM launches WHERE is_measured;

CREATE TABLE device_readings (
    run            TEXT NOT NULL REFERENCES runs,
    device         INTEGER NOT NULL,
    at_ns          INTEGER NOT NULL,
    health         TEXT NOT NULL,
    temperature_c  INTEGER,
    power_w        REAL,
    memory_used_mb INTEGER
) STRICT;

CREATE TABLE verdicts (
    run     TEXT NOT NULL REFERENCES runs,
    case_id TEXT NOT NULL REFERENCES cases,
    verdict TEXT NOT NULL,
    reason  TEXT NOT NULL,
    at_ns   INTEGER NOT NULL,
    PRIMARY KEY (run, case_id)
) STRICT;

