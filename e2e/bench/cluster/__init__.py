"""Twelve real training jobs on four real nodes: plain Kubernetes, greedy packing, and kfext.

Every pod has CPU requests = limits and a fixed number of threads, and every job fits one node; so
a job may use the same compute wherever its pods go, and only placement and network differ.
"""
