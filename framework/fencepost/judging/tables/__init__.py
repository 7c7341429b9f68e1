"""What a report needs of a run's events, folded once, in the pass that judges the run.

Theory of operation. A history is read event by event, and each event is seen once: by the rules, by
the writer of columns (`columnar.py`), and by `TablesFold`. At the end of the history the fold gives
`Tables`: rows, whose number depends on what happened, and hardly on how long the run was. They are
kept beside the verdicts, in `tables.json.gz`, so a report of ten million events reads some thousand
rows. Nothing folds a history a second time: where the file is missing, is damaged, or was made of
another history or by other code, the run is judged again, and the same pass makes both
(`folder.py`).

What a pass cannot know is when the run will end, and when a fault began whose injection is reported
only once it was measured. So two folds keep what they cannot place yet, as numbers in arrays: the
time of each event (`activity.py`), and of each operation when it began and how long it took
(`service.py`). That is 8 bytes an event and 16 an operation, and all that grows with a run.

Each concept is a file: `authority.py` (holders and states), `operations.py` (both ends of what
clients did, and what failed), `service.py` (silences and latencies), `activity.py` (processes, and
how many events each has when), `faults.py`. `fold.py` feeds them. `rows.py` has the rows.

See docs/decisions/34-folded-once.md.
"""
