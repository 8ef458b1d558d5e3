"""When waiting jobs should start: the planner run ahead over the expected ends of running jobs."""
