"""Shared parts of the end-to-end cases: kfext as processes, its proxy, jobs, and observation."""
