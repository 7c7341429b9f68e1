"""Raft with followers that pull (KIP-595)."""
