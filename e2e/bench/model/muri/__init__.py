"""Muri's published table V6: rigid schedulers on days of Philly's jobs, on 64 GPUs.

`trace` reads the jobs, `replay` runs them, `shortest` and `tiresias` say which of them run, and
`measure` compares with what was published. `simulate_csv` gives the same jobs to `kfext simulate`.
"""
