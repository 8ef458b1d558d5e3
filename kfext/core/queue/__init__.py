"""The order of waiting jobs, the reservation for the first, and the limits of quotas."""
