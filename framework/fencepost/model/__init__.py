"""The model of a run: topology, systems, faults, the runtime contract, errors, time."""
