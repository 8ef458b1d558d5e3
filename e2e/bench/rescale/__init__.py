"""What a change of an elastic job's size costs, by part: it makes room for a gang and grows back.

DRAGON's own setting: four nodes of 350m, an elastic job that fills them, and a gang that needs half
of them. A step is paced (a batch takes one worker a fixed time, shared by all of them), so that how
long training stood still is seen in the lines that it prints.
"""
