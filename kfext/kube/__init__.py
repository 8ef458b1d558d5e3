"""Adapters to the API server: everything here does I/O and decides nothing about jobs."""
