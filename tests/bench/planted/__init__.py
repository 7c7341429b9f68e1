"""Runs with one planted defect each, and the cause that each defect gives a failure."""
