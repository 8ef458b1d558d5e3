"""The admission webhooks, and the endpoint for posts of progress. No API call inside a review."""
