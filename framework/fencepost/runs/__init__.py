"""The life of one run, and what is made of many: replay, soak, defects, conformance."""
