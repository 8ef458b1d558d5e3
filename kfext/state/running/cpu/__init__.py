"""The CPU of running pods."""
