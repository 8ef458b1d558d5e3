"""The mirror of the cluster: jobs, pods, nodes and settings, and the claims of all jobs."""
