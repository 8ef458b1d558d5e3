"""The planner: it decides on the next step of each job, and can be recorded and restored."""
