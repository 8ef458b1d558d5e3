"""What kfext knows about a cluster, as frozen values. Parsing objects never raises or does I/O."""
