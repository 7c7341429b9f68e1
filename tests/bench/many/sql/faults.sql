SELECT run, fault_id, fault, from_ns, to_ns, healed FROM fault_times
