"""The agent of a node with GPUs: it shares each card between the pods that were placed on it."""
