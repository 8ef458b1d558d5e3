"""Muri's published table V6: rigid schedulers on days of Philly's jobs, on 64 GPUs.

`trace` reads the jobs, `replay` runs them, `shortest` and `tiresias` choose the running jobs, and
`measure` compares with the published figures. `simulate_csv` writes the same jobs for `kfext
simulate`.
"""
