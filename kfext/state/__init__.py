"""What kfext knows of the cluster, and the planner that turns it into steps. No I/O, no clock."""
