"""kfext on a true API server: whole jobs, bad input, and whatever may break on the way."""
