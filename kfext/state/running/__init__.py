"""The companion, which changes running jobs: a folder for each kind of change."""
