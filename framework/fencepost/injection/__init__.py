"""Faults of the network: links, toxiproxies, toxics, probes and receipts."""
