"""What kfext changes on running jobs: signals in, decisions out."""
