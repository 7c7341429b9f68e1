"""Commands over many runs: the search for defects, soaks, and the conformance matrix."""
