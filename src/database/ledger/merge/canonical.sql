-- Copies the attached ledger `united` into the empty ledger `main` such that the file depends on its content alone: rows are
-- inserted in the order of their identities, and keys are numbers in the order of time.
CREATE TEMP TABLE collection_keys (united INTEGER PRIMARY KEY, key INTEGER NOT NULL);
INSERT INTO temp.collection_keys
SELECT collection, row_number() OVER (ORDER BY started_ns, run, number) FROM united.collections;

CREATE TEMP TABLE attempt_keys (key INTEGER PRIMARY KEY, united INTEGER NOT NULL);
INSERT INTO temp.attempt_keys
SELECT row_number() OVER (ORDER BY ifnull(c.ended_ns, c.started_ns), k.key, a.case_id), a.attempt
FROM united.attempts a JOIN united.collections c USING (collection)
JOIN temp.collection_keys k ON k.united = a.collection;

INSERT INTO main.runs SELECT * FROM united.runs ORDER BY started_ns, run;
INSERT INTO main.software SELECT * FROM united.software ORDER BY digest;
INSERT INTO main.cases SELECT * FROM united.cases ORDER BY case_id;
INSERT INTO main.planned
SELECT p.* FROM united.planned p JOIN united.runs r USING (run) ORDER BY r.started_ns, p.run, p.ordinal, p.case_id;
INSERT INTO main.checks SELECT * FROM united.checks ORDER BY case_id;

INSERT INTO main.collections
    (collection, run, number, device, started_ns, ended_ns, outcome, purpose, predicted_s, gang, software, archive, cache)
SELECT k.key, c.run, c.number, c.device, c.started_ns, c.ended_ns, c.outcome, c.purpose, c.predicted_s, c.gang, c.software,
       c.archive, c.cache
FROM united.collections c JOIN temp.collection_keys k ON k.united = c.collection ORDER BY k.key;

INSERT INTO main.attempts (attempt, collection, case_id, launched, verdict, cause, remarks, counters, op_state, core, cycle_rate,
                           cycle_rate_error, is_withdrawn, operator)
SELECT k.key, c.key, a.case_id, a.launched, a.verdict, a.cause, a.remarks, a.counters, a.op_state, a.core, a.cycle_rate,
       a.cycle_rate_error, a.is_withdrawn, a.operator
FROM temp.attempt_keys k CROSS JOIN united.attempts a ON a.attempt = k.united
JOIN temp.collection_keys c ON c.united = a.collection ORDER BY k.key;

INSERT INTO main.launch_lists (attempt, states, start_ns, offsets_ns, durations_ns)
SELECT k.key, l.states, l.start_ns, l.offsets_ns, l.durations_ns
FROM temp.attempt_keys k CROSS JOIN united.launch_lists l ON l.attempt = k.united ORDER BY k.key;

INSERT INTO main.controls (collection, device, control, position, kernel, durations_ns, cycle_rate, cycle_rate_error)
SELECT k.key, o.device, o.control, o.position, o.kernel, o.durations_ns, o.cycle_rate, o.cycle_rate_error
FROM united.controls o JOIN temp.collection_keys k ON k.united = o.collection ORDER BY k.key, o.device, o.control, o.position;

INSERT INTO main.device_readings
SELECT * FROM united.device_readings ORDER BY run, device, at_ns, health, temperature_c, power_w, memory_used_mb;
INSERT INTO main.verdicts
SELECT v.* FROM united.verdicts v JOIN united.runs r USING (run) ORDER BY r.started_ns, v.run, v.case_id;
