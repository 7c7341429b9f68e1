"""Mutants: single changes of a system's code, and whether tests and random schedules notice them.

`mutations` finds them in a source, `trial` runs one in a process of its own, and `campaign` draws
some and tries them.
"""
