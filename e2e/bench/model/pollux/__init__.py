"""The simulator that Pollux was published with, rebuilt, and the tables that it must reproduce.

Source: Qiao et al., Pollux, OSDI 2021, and its data (petuum/adaptdl, branch osdi21-artifact). Jobs
train on 16 nodes of four GPUs. `profile` says how fast a job trains, `cluster` lets time pass, and
`tiresias`, `optimus` and `elastic` decide who trains where.
"""
