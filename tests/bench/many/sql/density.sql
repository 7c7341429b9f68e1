-- How many events of each sort a process had in each of 600 equal parts of the run. Those that refuse
-- an authority are among the others here, and one that ends several operations counts as its first.
-- In these runs only clients record operations.
WITH sorted AS (
    SELECT run, process, at_ns, 'other' AS sort, 1 AS n
    FROM events WHERE NOT starts_with(process, 'clients/')
    UNION ALL
    SELECT run, any_value(process), any_value(ended_ns), arg_min(outcome, file_row_number), 1
    FROM operations WHERE outcome <> '' GROUP BY run, position)
SELECT run, process, sort,
       least(greatest((at_ns - began_ns) * 600 // length_ns, 0), 599) AS part, sum(n)::BIGINT
FROM sorted JOIN spans USING (run) GROUP BY ALL HAVING sum(n) <> 0
