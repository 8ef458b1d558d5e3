"""The cost of a change of an elastic job's size, by part: down for a gang, and up again.

DRAGON's own setting: four nodes of 350m, an elastic job that fills them, and a gang that needs half
of them. A step is paced (a batch takes a fixed time, divided by all workers), so that the printed
lines show the pauses of the training.
"""
