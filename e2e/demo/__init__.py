"""The demo: the same real jobs under plain Kubernetes and under kfext, sent with the Kubeflow SDK.

Run with `make demo`. It starts two real nodes with 1 Gbit/s between them, installs kfext as an
administrator would, trains for real, shows the nodes and speed of the jobs, and cleans up.
"""
