"""The companion in virtual time, with ten jobs on a node."""
