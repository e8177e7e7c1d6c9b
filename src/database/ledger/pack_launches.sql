-- Moves the rows of `launch_rows`, one for each launch, into `launch_lists`.
INSERT INTO launch_lists (attempt, states, start_ns, offsets_ns, durations_ns)
SELECT attempt, group_concat(CASE WHEN NOT is_measured THEN 'w' WHEN is_accepted THEN 'a' ELSE 'o' END, '' ORDER BY number),
       first_ns, json_group_array(start_ns - first_ns ORDER BY number), json_group_array(duration_ns ORDER BY number)
FROM launch_rows JOIN (SELECT attempt, min(start_ns) AS first_ns FROM launch_rows GROUP BY attempt) USING (attempt)
GROUP BY attempt;
DROP TABLE launch_rows;
