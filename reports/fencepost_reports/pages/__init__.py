"""The pages that people look at, made of the tables of runs."""
