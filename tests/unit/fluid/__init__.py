"""A fluid model of clusters: nodes, jobs that train, and the real planner that drives them."""
