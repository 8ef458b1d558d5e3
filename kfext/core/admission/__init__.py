"""The decisions of the webhooks about new jobs and pods."""
