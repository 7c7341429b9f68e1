-- The longest time without a success of each client, of one kind and subject: between its first
-- operation, its successes, and the end of its last operation. Of equal ones the first.
WITH ops AS (
    SELECT run, process, what, subject, began_ns, ended_ns, outcome = 'ok' AS ok,
           row_number() OVER in_order AS n
    FROM operations
    WINDOW in_order AS (PARTITION BY run, process, what, subject ORDER BY file_row_number)),
ends AS (
    SELECT run, process, what, subject, min(began_ns) AS began_ns,
           arg_max(ended_ns, n) AS ended_ns, count(*) AS n
    FROM ops GROUP BY ALL),
marks AS (
    SELECT run, process, what, subject, n, ended_ns FROM ops WHERE ok
    UNION ALL
    SELECT run, process, what, subject, n + 1, ended_ns FROM ends),
gaps AS (
    SELECT run, process, what, subject, marks.n,
           coalesce(lag(marks.ended_ns) OVER in_order, began_ns) AS from_ns,
           marks.ended_ns AS to_ns,
           marks.n - coalesce(lag(marks.n) OVER in_order, 0) - 1 AS missed
    FROM marks JOIN ends USING (run, process, what, subject)
    WINDOW in_order AS (PARTITION BY run, process, what, subject ORDER BY marks.n)),
longest AS (
    SELECT run, process, what, subject,
           arg_max(struct_pack(from_ns, to_ns, missed), (to_ns - from_ns, -n)) AS gap
    FROM gaps GROUP BY ALL)
SELECT run, process, what, subject, gap.from_ns, gap.to_ns, gap.missed FROM longest
