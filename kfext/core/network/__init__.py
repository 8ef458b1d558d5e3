"""Which jobs use the network of their nodes, and what that changes on their pods."""
