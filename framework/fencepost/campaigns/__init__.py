"""What is made of many runs: the search for defects, soaks, and what each clause comes to."""
