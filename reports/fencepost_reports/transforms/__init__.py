"""What is made of the tables: each function takes DataFrames, returns one, and does nothing else.

None of them reads, writes, collects or knows a session. Columns named `*_ns` are CLOCK_MONOTONIC of
the run's one host; `position` is the place in the run's history, which respects happens-before.
"""
