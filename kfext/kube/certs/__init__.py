"""Certificates of the webhook: an authority in a Secret, short-lived certificates in memory."""
