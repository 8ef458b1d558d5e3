"""Adapters to the API server. This package does I/O and makes no decision about jobs."""
