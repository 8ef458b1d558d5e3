"""Pure decisions: values in, values out. No clock, no I/O, no logging; time is an argument.

A rule that excludes nodes belongs in `fit`, a rule that prefers one node to another in `score`, a
rule about sets of nodes in `nodeset`, and a rule about when a job starts, waits or is released in
`lifecycle`.
"""
