"""The kinds of training jobs: one adapter each. No other code distinguishes kinds."""
