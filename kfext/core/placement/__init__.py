"""The solver: the node of every pod of a gang."""
