"""End-to-end tests and benchmarks on a real cluster, and the testbed that runs it."""
