"""What the webhooks do to a new job and to a new pod."""
