"""What plays a GPU where there is none, and says so in its name."""
