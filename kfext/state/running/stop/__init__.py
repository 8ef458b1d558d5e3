"""Running jobs that stop for others."""
