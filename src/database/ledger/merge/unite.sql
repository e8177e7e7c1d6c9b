-- Adds the attached ledger `source` to the union `main`: see merge.rs for the order of states.
INSERT INTO main.runs AS m SELECT * FROM source.runs WHERE true
ON CONFLICT (run) DO UPDATE SET ended_ns = excluded.ended_ns, exit_code = excluded.exit_code
WHERE (ifnull(excluded.ended_ns, -1), ifnull(excluded.exit_code, -1)) > (ifnull(m.ended_ns, -1), ifnull(m.exit_code, -1));

INSERT INTO main.software SELECT * FROM source.software WHERE true ON CONFLICT DO NOTHING;
INSERT INTO main.cases SELECT * FROM source.cases WHERE true ON CONFLICT DO NOTHING;

INSERT INTO main.planned AS m SELECT * FROM source.planned WHERE true
ON CONFLICT (run, case_id) DO UPDATE SET ordinal = min(m.ordinal, excluded.ordinal);

INSERT INTO main.checks AS m SELECT * FROM source.checks WHERE true
ON CONFLICT (case_id) DO UPDATE
SET digest = excluded.digest, software = excluded.software, verdict = excluded.verdict, judge = excluded.judge,
    message = excluded.message, at_ns = excluded.at_ns
WHERE (excluded.at_ns, excluded.digest, excluded.software, excluded.verdict, excluded.judge, excluded.message)
    > (m.at_ns, m.digest, m.software, m.verdict, m.judge, m.message);

INSERT INTO main.collections AS m
    (run, number, device, started_ns, ended_ns, outcome, purpose, predicted_s, gang, software, archive, cache)
SELECT run, number, device, started_ns, ended_ns, outcome, purpose, predicted_s, gang, software, archive, cache
FROM source.collections WHERE true
ON CONFLICT (run, number) DO UPDATE
SET ended_ns = excluded.ended_ns, outcome = excluded.outcome, software = excluded.software, archive = excluded.archive
WHERE (ifnull(excluded.ended_ns, -1), ifnull(excluded.archive, ''), ifnull(excluded.software, ''), ifnull(excluded.outcome, ''))
    > (ifnull(m.ended_ns, -1), ifnull(m.archive, ''), ifnull(m.software, ''), ifnull(m.outcome, ''));

-- Keys of the objects of `source` in the union.
CREATE TEMP TABLE collection_keys (source INTEGER PRIMARY KEY, united INTEGER NOT NULL);
INSERT INTO temp.collection_keys
SELECT s.collection, m.collection FROM source.collections s JOIN main.collections m USING (run, number);

CREATE TEMP TABLE attempt_keys (source INTEGER PRIMARY KEY, united INTEGER NOT NULL, is_new INTEGER NOT NULL);
INSERT INTO temp.attempt_keys
SELECT s.attempt,
       ifnull(m.attempt, (SELECT ifnull(max(attempt), 0) FROM main.attempts) + row_number() OVER (ORDER BY s.attempt)),
       m.attempt IS NULL
FROM source.attempts s JOIN temp.collection_keys k ON k.source = s.collection
LEFT JOIN main.attempts m ON m.collection = k.united AND m.case_id = s.case_id;

-- Attempts whose state of `source` replaces that of the union.
CREATE TEMP TABLE replaced (source INTEGER PRIMARY KEY, united INTEGER NOT NULL);
INSERT INTO temp.replaced
SELECT k.source, k.united FROM temp.attempt_keys k
JOIN source.attempts s ON s.attempt = k.source JOIN main.attempts m ON m.attempt = k.united
WHERE NOT k.is_new
AND (s.is_withdrawn, s.launched, s.verdict, s.cause, s.remarks, s.counters, s.op_state, s.core, s.operator,
     ifnull(s.cycle_rate, -1), ifnull(s.cycle_rate_error, -1),
     ifnull((SELECT concat_ws(':', states, start_ns, offsets_ns, durations_ns)
             FROM source.launch_lists l WHERE l.attempt = s.attempt), ''))
  > (m.is_withdrawn, m.launched, m.verdict, m.cause, m.remarks, m.counters, m.op_state, m.core, m.operator,
     ifnull(m.cycle_rate, -1), ifnull(m.cycle_rate_error, -1),
     ifnull((SELECT concat_ws(':', states, start_ns, offsets_ns, durations_ns)
             FROM main.launch_lists l WHERE l.attempt = m.attempt), ''));

DELETE FROM main.launch_lists WHERE attempt IN (SELECT united FROM temp.replaced);
DELETE FROM main.attempts WHERE attempt IN (SELECT united FROM temp.replaced);
UPDATE temp.attempt_keys SET is_new = 1 WHERE source IN (SELECT source FROM temp.replaced);

INSERT INTO main.attempts (attempt, collection, case_id, launched, verdict, cause, remarks, counters, op_state, core, cycle_rate,
                           cycle_rate_error, is_withdrawn, operator)
SELECT a.united, c.united, s.case_id, s.launched, s.verdict, s.cause, s.remarks, s.counters, s.op_state, s.core, s.cycle_rate,
       s.cycle_rate_error, s.is_withdrawn, s.operator
FROM temp.attempt_keys a JOIN source.attempts s ON s.attempt = a.source
JOIN temp.collection_keys c ON c.source = s.collection
WHERE a.is_new ORDER BY a.united;

INSERT INTO main.launch_lists (attempt, states, start_ns, offsets_ns, durations_ns)
SELECT a.united, l.states, l.start_ns, l.offsets_ns, l.durations_ns
FROM temp.attempt_keys a CROSS JOIN source.launch_lists l ON l.attempt = a.source
WHERE a.is_new;

INSERT INTO main.controls AS m
    (collection, device, control, position, kernel, durations_ns, cycle_rate, cycle_rate_error)
SELECT k.united, s.device, s.control, s.position, s.kernel, s.durations_ns, s.cycle_rate, s.cycle_rate_error
FROM source.controls s JOIN temp.collection_keys k ON k.source = s.collection WHERE true
ON CONFLICT (collection, device, control, position) DO UPDATE
SET kernel = excluded.kernel, durations_ns = excluded.durations_ns, cycle_rate = excluded.cycle_rate,
    cycle_rate_error = excluded.cycle_rate_error
WHERE (excluded.kernel, excluded.durations_ns, ifnull(excluded.cycle_rate, -1), ifnull(excluded.cycle_rate_error, -1))
    > (m.kernel, m.durations_ns, ifnull(m.cycle_rate, -1), ifnull(m.cycle_rate_error, -1));

INSERT INTO main.device_readings
SELECT DISTINCT * FROM source.device_readings s
WHERE NOT EXISTS (SELECT 1 FROM main.device_readings m
                  WHERE m.run = s.run AND m.device = s.device AND m.at_ns = s.at_ns AND m.health = s.health
                  AND m.temperature_c IS s.temperature_c AND m.power_w IS s.power_w
                  AND m.memory_used_mb IS s.memory_used_mb);

-- A verdict before `not_run`, which a resumed run removes.
INSERT INTO main.verdicts AS m SELECT * FROM source.verdicts WHERE true
ON CONFLICT (run, case_id) DO UPDATE
SET verdict = excluded.verdict, cause = excluded.cause, remarks = excluded.remarks, at_ns = excluded.at_ns
WHERE (excluded.verdict <> 'not_run', excluded.at_ns, excluded.verdict, excluded.cause, excluded.remarks)
    > (m.verdict <> 'not_run', m.at_ns, m.verdict, m.cause, m.remarks);

DROP TABLE temp.collection_keys;
DROP TABLE temp.attempt_keys;
DROP TABLE temp.replaced;
