"""The number of workers of running jobs."""
