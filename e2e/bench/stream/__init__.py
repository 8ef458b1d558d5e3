"""A stream of elastic and rigid jobs on four nodes.

The same jobs come at the same times in every arm: plain Kubernetes, kfext without its policy of
scaling, and kfext with it. Every pod has CPU requests = limits and one thread.
"""
