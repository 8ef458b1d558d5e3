"""kfext beside published schedulers in the model cluster of `kfext simulate`.

`dragon` decides on whole jobs, and `carrier` carries out its decisions. `flowcon` and `specon` act
on jobs of one thread, on nodes that `mapped` draws.
"""
