"""The soak: random work and random faults for a while, and then the books must balance.

`script` throws the dice; `deeds`, `others`, `tenants` and `trouble` do what it says. `mirror`
follows the API server, and the checker of `invariants` (with `facts`, `memory`, `gangs`, `rooms`,
`scaling` and `stops`) judges what it shows. The checker shares no code with kfext: it reads the API
server's JSON and knows the names in it by itself. Its tally counts what was done and what took
effect, so that a soak in which nothing happened shows.
"""
