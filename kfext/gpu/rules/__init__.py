"""Sharing a GPU: whose turn it is, and how much a job of high priority may lose."""
