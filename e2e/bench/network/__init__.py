"""One real job in five placements: spread or together, overlay or host network, and alone.

CPU requests = limits, fixed thread counts, and the whole job fits one node, so that compute is the
same in every placement and only the way between the processes differs.
"""
