"""Tests assert what is right, not how fast: a busy machine must not make one fail."""

from hypothesis import settings

settings.register_profile("kfext", deadline=None)
settings.load_profile("kfext")
