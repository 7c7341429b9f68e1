"""The life of one run, and what starts one: tests, the demo, replay, random schedules."""
