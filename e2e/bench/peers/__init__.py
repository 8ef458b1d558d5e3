"""kfext beside plain Kubernetes, pod affinity, native gangs and Kueue: same cluster, same jobs."""
