"""kfext beside plain Kubernetes, pod affinity and Kueue, on one cluster with the same jobs."""
