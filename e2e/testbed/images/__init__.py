"""The container images of the testbed, built without a registry or a container engine."""

TRAINING_IMAGE = "kfext-testbed/training:dev"
TENSORFLOW_IMAGE = "kfext-testbed/tensorflow:dev"
KFEXT_IMAGE = "kfext:dev"
PAUSE_IMAGE = "kfext-testbed/pause:dev"
