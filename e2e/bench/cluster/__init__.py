"""Twelve real training jobs on four real nodes: plain Kubernetes, greedy packing, and kfext.

Every pod has CPU requests = limits and a fixed number of threads, and every job fits one node; so
a job has the same compute on any nodes, and only placement and network differ.
"""
