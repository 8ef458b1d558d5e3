"""The admission webhooks: reviews in, patches out, nothing else. No API call inside a review."""
