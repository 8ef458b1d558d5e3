"""The free capacity of every node, and the nodes that a pod may use."""
