"""The objects of a cluster as frozen values. Parsing never raises and does no I/O."""
