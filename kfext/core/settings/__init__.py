"""The settings that a user may write, and which of them hold for a job."""
