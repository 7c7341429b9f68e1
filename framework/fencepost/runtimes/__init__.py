"""The runtimes: local processes, containers, and the simulator."""
