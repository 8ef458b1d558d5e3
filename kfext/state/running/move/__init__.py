"""The nodes of running jobs."""
