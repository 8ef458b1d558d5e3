"""Pure decisions: values in, values out. No clock, no I/O, no logging; time is an argument.

Where a new placement rule goes: what makes a node impossible, into `fit`; what makes one node
better than another, into `score`; what makes a node set good, into `nodeset`; when a job may
start, wait or be released, into `lifecycle`.
"""
