"""The reports of running jobs: their progress, from logs and posts, and their use of CPU."""
