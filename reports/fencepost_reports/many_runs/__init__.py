"""Many runs: one Spark task reads one run; Spark itself computes only tables over several runs."""
