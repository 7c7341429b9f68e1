"""Faults, holds of single messages, and the choice of the next fault of a random schedule."""
