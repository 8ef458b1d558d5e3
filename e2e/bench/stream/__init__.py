"""A stream of elastic and rigid jobs on four nodes, under whoever starts and scales them.

The same jobs come at the same times in every arm: plain Kubernetes, kfext without its policy of
scaling, kfext with it, and DRAGON as published. Every pod has CPU requests = limits and one thread.
"""
