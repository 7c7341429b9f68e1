"""Sockets, files, clocks and signals: carries out the core's effects, and decides nothing."""
