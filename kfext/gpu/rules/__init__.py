"""Rules of sharing a GPU: the turns of the sharers, and the loss of a high-priority job."""
