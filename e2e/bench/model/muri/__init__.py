"""Table V6, published by Muri: rigid schedulers, days of jobs of the Philly trace, 64 GPUs.

`trace` reads the jobs, `replay` runs them, `shortest` and `tiresias` choose the running jobs, and
`measure` compares the results with the published ones. `simulate_csv` writes the same jobs for
`kfext simulate`.
"""
