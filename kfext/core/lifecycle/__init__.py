"""The path of a job: from the state of the cluster to the next step."""
