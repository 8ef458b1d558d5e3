"""The jobs that wait: order, expected duration, quotas, and the capacity reserved for them."""
