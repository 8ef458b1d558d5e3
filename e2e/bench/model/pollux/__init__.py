"""Pollux's published simulator, rebuilt, and the tables that it must reproduce.

Source: Qiao et al., Pollux, OSDI 2021, and its data (petuum/adaptdl, branch osdi21-artifact). Jobs
train on 16 nodes of four GPUs. `step_time` and `application` model the speed of a job, `cluster`
advances time, and `tiresias`, `optimus` and `elastic` allocate the GPUs.
"""
