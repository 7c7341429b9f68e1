"""The HTML pages, made from the tables of runs."""
