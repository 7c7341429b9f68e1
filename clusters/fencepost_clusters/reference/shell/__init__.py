"""Sockets, files, clocks and signals: carries out what the core wants, and decides nothing."""
