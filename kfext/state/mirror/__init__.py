"""What the API server shows of jobs, pods, nodes and settings, and the claims of all jobs."""
