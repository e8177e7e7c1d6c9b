-- The ledger, whole. Times are nanoseconds: instants since the epoch, or durations.
CREATE TABLE runs (
    run        TEXT PRIMARY KEY,
    kind       TEXT NOT NULL CHECK (kind IN ('npu', 'rehearsal')),
    seed       INTEGER NOT NULL,
    -- Effective options, and the host with its software, as JSON.
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

-- What the vendor's code answered about the call of a case. The digest shows whether the call has changed since.
CREATE TABLE checks (
    case_id  TEXT PRIMARY KEY,
    digest   TEXT NOT NULL,
    software TEXT NOT NULL,
    verdict  TEXT NOT NULL,
    judge    TEXT NOT NULL,
    message  TEXT NOT NULL,
    at_ns    INTEGER NOT NULL
) STRICT;

-- Fingerprints of the software, as JSON.
CREATE TABLE software (
    digest      TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL
) STRICT;

CREATE TABLE collections (
    collection  INTEGER PRIMARY KEY,
    run         TEXT NOT NULL REFERENCES runs,
    number      INTEGER NOT NULL,
    device      INTEGER NOT NULL,
    -- JSON list of all devices of a gang, or NULL for one device.
    gang        TEXT,
    -- Why the collection was begun, and how long it was predicted to take.
    purpose     TEXT NOT NULL DEFAULT 'measure',
    predicted_s REAL,
    -- State of the cache before each launch. Samples of different states are never pooled or compared.
    cache       TEXT NOT NULL DEFAULT 'hot' CHECK (cache IN ('hot', 'cold')),
    started_ns  INTEGER NOT NULL,
    ended_ns    INTEGER,
    outcome     TEXT,
    -- NULL if the software is unknown.
    software    TEXT REFERENCES software,
    -- SHA-256 of the compressed evidence; NULL if it could not be written.
    archive     TEXT,
    UNIQUE (run, number)
) STRICT;

CREATE TABLE attempts (
    attempt          INTEGER PRIMARY KEY,
    collection       INTEGER NOT NULL REFERENCES collections,
    case_id          TEXT NOT NULL REFERENCES cases,
    launched         INTEGER NOT NULL,
    verdict          TEXT NOT NULL,
    -- Cause of the verdict and list of remarks, as JSON.
    cause            TEXT NOT NULL,
    remarks          TEXT NOT NULL,
    counters         TEXT NOT NULL,
    -- `OP State`, `Task Type`, and `Op Name` without numbers, of its launches.
    op_state         TEXT NOT NULL DEFAULT '',
    core             TEXT NOT NULL DEFAULT '',
    operator         TEXT NOT NULL DEFAULT '',
    -- Median of the cycles per block and microsecond over the accepted launches, and its relative standard error.
    cycle_rate       REAL,
    cycle_rate_error REAL,
    -- 1 for an attempt that was accepted until later collections showed that its clock was low.
    is_withdrawn     INTEGER NOT NULL DEFAULT 0,
    UNIQUE (collection, case_id)
) STRICT;
CREATE INDEX attempts_by_case ON attempts (case_id);
CREATE INDEX withdrawn_attempts ON attempts (case_id) WHERE is_withdrawn;

-- The recorded launches of an attempt, in one row: with a row for each launch, they were most of the file, and reading them
-- most of the time of every command.
CREATE TABLE launch_lists (
    attempt      INTEGER PRIMARY KEY REFERENCES attempts,
    -- A letter for each launch in order: `w` warm-up, `a` accepted sample, `o` sample outside of the outlier fence.
    states       TEXT NOT NULL,
    -- Earliest start of a launch.
    start_ns     INTEGER NOT NULL,
    -- JSON list of the starts relative to it.
    offsets_ns   TEXT NOT NULL,
    -- JSON list.
    durations_ns TEXT NOT NULL
) STRICT;

-- A row for each launch.
CREATE VIEW launches AS
SELECT l.attempt, d.key AS number, substr(l.states, d.key + 1, 1) <> 'w' AS is_measured,
       substr(l.states, d.key + 1, 1) = 'a' AS is_accepted,
       l.start_ns + json_extract(l.offsets_ns, '$[' || d.key || ']') AS start_ns, d.value AS duration_ns
FROM launch_lists l, json_each(l.durations_ns) d;

-- A sample is a measured launch.
CREATE VIEW samples AS SELECT * FROM launches WHERE is_measured;

-- Launches of the control kernels at the ends of each collection: the durations after the warm-up, as a JSON list, and the
-- median of the cycles per block and microsecond with its relative standard error.
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

CREATE TABLE device_readings (
    run            TEXT NOT NULL REFERENCES runs,
    device         INTEGER NOT NULL,
    at_ns          INTEGER NOT NULL,
    health         TEXT NOT NULL,
    temperature_c  INTEGER,
    power_w        REAL,
    memory_used_mb INTEGER
) STRICT;
CREATE INDEX readings_by_device ON device_readings (run, device, at_ns);

CREATE TABLE verdicts (
    run     TEXT NOT NULL REFERENCES runs,
    case_id TEXT NOT NULL REFERENCES cases,
    verdict TEXT NOT NULL,
    -- As in `attempts`.
    cause   TEXT NOT NULL,
    remarks TEXT NOT NULL,
    at_ns   INTEGER NOT NULL,
    PRIMARY KEY (run, case_id)
) STRICT;
