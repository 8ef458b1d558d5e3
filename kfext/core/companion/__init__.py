"""What kfext does to jobs that run: values in, decisions out."""
