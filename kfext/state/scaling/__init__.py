"""How many workers running jobs have: who is looked at, what is decided, and what comes of it."""
