"""What is free on every node, and which nodes a pod may use."""
