"""What the hook reports to the owner of a job."""

import sys


def report(text: str) -> None:
    """Write a line to stderr, if the job has not closed it."""
    try:
        sys.stderr.write(f"kfext: {text}\n")
    except Exception:
        return
