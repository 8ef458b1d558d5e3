"""A GPU cluster that fills up: published schedulers, and kfext's placement, on the trace `openb`.

`trace` reads the files; `fill` draws the pods and places one after the other on a `cluster`.
`scores` and `fgd` are the published schedulers, `by_kfext` is kfext. `measure` compares the results
with the published ones.
"""
