"""The CPU policies of the companion on a simulated node."""
