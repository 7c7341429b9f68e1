"""The Spark job that reads the histories of any number of runs, and the pages made from its tables.

run folders -> `reading` (events as rows) -> `judging` (rules, a key at a time) -> `transforms`
(DataFrame to DataFrame) -> Parquet -> `render` (one HTML page, one static timeline a run).
"""
