SELECT split_part(filename, '/', -3), clause, verdict, exercised, violated, evidence
FROM read_parquet('$runs/*/columns/verdicts.parquet', filename = true)
