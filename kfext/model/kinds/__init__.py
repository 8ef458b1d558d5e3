"""The kinds of training jobs: one adapter each, and nothing else tells kinds apart."""
