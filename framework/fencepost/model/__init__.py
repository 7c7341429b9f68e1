"""What a run is made of: topology, systems, faults, the runtime contract, errors, time."""
