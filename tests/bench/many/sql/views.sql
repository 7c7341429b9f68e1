-- What the queries read: $runs stands for the folder of the run folders.
CREATE VIEW events AS
SELECT split_part(filename, '/', -3) AS run, *
FROM read_parquet('$runs/*/columns/events.parquet', filename = true);

CREATE VIEW operations AS
SELECT split_part(filename, '/', -3) AS run, *
FROM read_parquet('$runs/*/columns/operations.parquet', filename = true, file_row_number = true);

CREATE VIEW spans AS
SELECT split_part(filename, '/', -2) AS run, "end".began_at_ns AS began_ns,
       "end".ended_at_ns AS ended_ns, greatest(ended_ns - began_ns, 1) AS length_ns
FROM read_json('$runs/*/judged.json', filename = true);

CREATE VIEW fault_times AS
WITH heals AS (
    SELECT run, fault_id, arg_max(at_ns, position) AS healed_ns
    FROM events WHERE kind = 'fault.healed' GROUP BY ALL)
SELECT i.run, i.fault_id, i.fault, coalesce(nullif(i.began_at_ns, 0), i.at_ns) AS from_ns,
       coalesce(healed_ns, ended_ns) AS to_ns, healed_ns IS NOT NULL AS healed
FROM events AS i LEFT JOIN heals USING (run, fault_id) JOIN spans USING (run)
WHERE i.kind = 'fault.injected';
