"""Frozen values: what kfext knows of a cluster. Parsing is tolerant and never does I/O."""
