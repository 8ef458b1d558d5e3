"""The command line: `kfext` for services and files, `kubectl kfext` for jobs in a cluster."""
