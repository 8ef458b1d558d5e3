"""The soak: random work and random faults for a while, and then the books must balance.

`script` throws the dice (with `mischief`, for what others than honest users do), `deeds`, `upsets`,
`others`, `tenants` and `trouble` do what it says. `programs` is what the pods print. `mirror`
follows the API server, and the checker of `invariants` (with `facts`, `memory`, `sizes`, `gangs`,
`rooms`, `scaling`, `starts` and `telling`) judges what it shows. The checker shares no code with
kfext: it reads the API server's JSON and knows the names in it by itself. `processes` watches
kfext's own processes. `tally` counts what was done and what took effect, so that a soak in which
nothing happened shows.
"""
