"""The progress and the growth of a job, from the lines of its log and its posts."""
