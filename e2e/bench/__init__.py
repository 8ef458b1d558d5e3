"""Benchmarks of kfext: `python -m e2e.bench`. Each compares with a reference in the same run."""
