"""The companion: what kfext changes on running jobs, one folder for each kind of change."""
