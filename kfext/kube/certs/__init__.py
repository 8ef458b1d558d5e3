"""Certificates of the webhook: an own authority in a Secret, short leaves in memory."""
