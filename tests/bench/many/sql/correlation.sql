WITH cut AS (
    SELECT w.fault, w.types, w.failed FROM (
        SELECT unnest(windows) AS w
        FROM read_parquet('$report/tables/runs/*/*/run.parquet', hive_partitioning = false))),
found AS (
    SELECT failed, '' AS fault, unnest(types) AS type FROM cut
    UNION ALL SELECT failed, fault, '' FROM cut WHERE fault <> ''
    UNION ALL SELECT failed, fault, unnest(types) FROM cut WHERE fault <> ''),
sorts AS (SELECT unnest(['violation', 'operation']) AS what),
totals AS (
    SELECT what, count(*) AS windows, count(*) FILTER (list_contains(failed, what)) AS failed
    FROM cut, sorts GROUP BY what),
counted AS (
    SELECT what, fault, type, count(*) AS occurred,
           count(*) FILTER (list_contains(failed, what)) AS in_both
    FROM found, sorts GROUP BY ALL)
SELECT what, nullif(fault, ''), nullif(type, ''), windows, occurred, failed, in_both,
       in_both / windows, in_both / occurred, (in_both / occurred) / (failed / windows)
FROM counted JOIN totals USING (what) WHERE failed > 0
