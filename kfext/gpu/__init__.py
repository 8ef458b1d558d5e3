"""Sharing a GPU between two jobs: the wing that jobs without a share never enter."""
