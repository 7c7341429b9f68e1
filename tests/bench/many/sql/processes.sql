WITH exits AS (
    SELECT run, ended AS process, arg_max(at_ns, position) AS at_ns
    FROM events WHERE kind = 'process.exited' GROUP BY ALL)
SELECT e.run, e.process, min(e.at_ns), greatest(max(e.at_ns), any_value(exits.at_ns)), count(*)
FROM events AS e LEFT JOIN exits USING (run, process) GROUP BY ALL
