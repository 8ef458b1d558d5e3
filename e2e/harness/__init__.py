"""What the end-to-end cases share: kfext as processes, the proxy in between, jobs, and eyes."""
