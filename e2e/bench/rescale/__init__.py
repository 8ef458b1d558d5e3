"""The cost of scaling an elastic job down for a gang and up again, by phase of the change.

The setting is DRAGON's: four nodes of 350m, an elastic job that fills them, and a gang that needs
half of them. Steps are paced (a batch takes a fixed time, divided by the number of workers), so
that the printed lines show the pauses of training.
"""
