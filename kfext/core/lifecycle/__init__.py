"""The path of one job: from what the cluster shows to the next step."""
