"""One run as small tables: a pure function of its history and its verdicts.

See docs/decisions/30-pure-reports.md."""
