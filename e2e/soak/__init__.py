"""The soak: random work and random faults for a while, and then the books must balance.

`script` throws the dice, `deeds` and `trouble` do what they say, `mirror` follows the API server,
and `checker` (with `facts`, `gangs` and `rooms`) judges what it shows. The checker shares no code
with kfext: it reads the API server's JSON and knows the names in it by itself.
"""
