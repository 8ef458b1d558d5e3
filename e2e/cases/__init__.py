"""kfext on a real API server: whole jobs, bad input, and faults on the way."""
