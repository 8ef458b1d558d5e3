"""kfext: an extension of Kubeflow's training-operator that makes training jobs finish sooner."""

__version__ = "0.4.0"
