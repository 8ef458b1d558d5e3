"""kfext and published schedulers in the simulated cluster of `kfext simulate`.

`dragon` decides on multi-pod jobs, and `carrier` carries out its decisions. `flowcon` and `specon`
act on jobs of one thread, on nodes that `mapped` draws.
"""
