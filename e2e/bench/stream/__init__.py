"""A stream of elastic and rigid jobs on four nodes.

The same jobs arrive at the same times in every arm: plain Kubernetes, kfext without the policy
`scale`, and kfext with it. Every pod has CPU limits equal to its requests, and one thread.
"""
