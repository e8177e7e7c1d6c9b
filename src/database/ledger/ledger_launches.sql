-- Since layout 12: the launches of an attempt are one row. As a row each they were most of the file, and reading them most of
-- the time of every command. The views have a row for each launch, as the tables before.
DROP VIEW samples;
ALTER TABLE launches RENAME TO launch_rows;

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

CREATE VIEW launches AS
SELECT l.attempt, d.key AS number, substr(l.states, d.key + 1, 1) <> 'w' AS is_measured,
       substr(l.states, d.key + 1, 1) = 'a' AS is_accepted,
       l.start_ns + json_extract(l.offsets_ns, '$[' || d.key || ']') AS start_ns, d.value AS duration_ns
FROM launch_lists l, json_each(l.durations_ns) d;

-- A sample is a measured launch.
CREATE VIEW samples AS SELECT * FROM launches WHERE is_measured;
