"""The soak: random work and random faults for some minutes; then the whole state must be right.

`script` chooses the actions at random; `actions`, `pod_actions`, `tenants` and `process_faults`
carry them out. `mirror` follows the API server, and the checker of `invariants` (with `facts`,
`memory`, `gangs`, `capacity`, `scaling` and `stops`) checks each state. The checker shares no code
with kfext: it reads the API server's JSON and has its own list of the names in it. Its tally counts
the actions and their effects, so a soak in which nothing happened is noticed.
"""
