"""The companion in virtual time: ten jobs on a node, and what becomes of them."""
