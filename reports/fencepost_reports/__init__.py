"""The report over any number of runs: tables, and pages made from them.

Each run folder is read and judged by `one_run`, which makes the rows of one run. Over more than one
run, `many_runs` has Spark do that, a task for each run, and correlates the rows into tables of all
runs. `pages` renders the rows: one HTML page and one static timeline for each run, and an index.
"""
