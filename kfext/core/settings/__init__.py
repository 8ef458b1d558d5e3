"""The settings that a user may write, and their values for a job."""
