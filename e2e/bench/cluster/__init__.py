"""Twelve real training jobs on four real nodes: plain Kubernetes, greedy packing, and kfext.

In every pod CPU limits equal requests and the number of threads is fixed, and every job fits one
node; so a job computes equally fast on any nodes, and only placement and network differ.
"""
