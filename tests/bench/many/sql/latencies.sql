-- How long operations took that began before, during or after each fault; `before` begins, and
-- `after` ends, where another fault is injected or healed. An operation that failed took -1.
WITH edges AS (
    SELECT run, fault_id, unnest([from_ns, to_ns]) AS edge FROM fault_times),
near AS (
    SELECT f.run, f.fault_id, from_ns, to_ns,
           max(edge) FILTER (edge < from_ns) AS before_ns,
           min(edge) FILTER (edge >= to_ns) AS after_ns
    FROM fault_times AS f LEFT JOIN edges AS e ON e.run = f.run AND e.fault_id <> f.fault_id
    GROUP BY ALL),
parts AS (
    SELECT run, fault_id, unnest(['before', 'during', 'after']) AS part,
           unnest([coalesce(before_ns, -1), from_ns, to_ns]) AS low,
           unnest([from_ns, to_ns, coalesce(after_ns, 9223372036854775807)]) AS high
    FROM near),
took AS (
    SELECT run, what, began_ns, if(outcome = 'ok', ended_ns - began_ns, -1) AS ns
    FROM operations WHERE ended_ns > began_ns),
chosen AS (
    SELECT p.run, fault_id, part, what, count(*) AS n, max(ns) AS longest,
           coalesce(list_sort(list(ns) FILTER (ns >= 0)), []) AS good
    FROM parts AS p JOIN took AS t ON t.run = p.run AND began_ns >= low AND began_ns < high
    GROUP BY ALL)
SELECT run, fault_id, part, what, n, len(good), coalesce(good[len(good) // 2 + 1], -1),
       coalesce(good[len(good) * 99 // 100 + 1], -1), longest
FROM chosen
