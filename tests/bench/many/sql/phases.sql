SELECT run, phase, at_ns FROM events WHERE kind = 'run.phase'
