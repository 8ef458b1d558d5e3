"""How many workers a running job has: the starvation guard and growth that pays."""
