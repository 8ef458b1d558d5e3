"""The planner: the next step of each job, and a recording that it can decide on again."""
