"""What running jobs report: progress from their logs and posts, and the CPU that they use."""
