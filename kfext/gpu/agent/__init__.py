"""The agent of a node with GPUs: it shares each card between the jobs that were placed on it."""
