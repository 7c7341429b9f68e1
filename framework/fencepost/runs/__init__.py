"""The life of one run, and the callers that start one: tests, the demo, replay, random
schedules."""
