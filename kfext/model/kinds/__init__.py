"""The kinds of training jobs: one adapter each. Code elsewhere never tells kinds apart."""
