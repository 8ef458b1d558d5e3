"""The state of the cluster as kfext knows it, and the planner of its steps. No I/O, no clock."""
