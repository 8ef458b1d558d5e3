"""Which job is next, what is reserved for it, and what its quotas allow."""
