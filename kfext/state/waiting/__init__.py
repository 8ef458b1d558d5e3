"""The jobs that wait: order, expected duration, quotas, and the capacity kept for them."""
