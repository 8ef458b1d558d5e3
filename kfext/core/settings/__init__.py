"""What a user may ask for, and which of it holds for a job."""
