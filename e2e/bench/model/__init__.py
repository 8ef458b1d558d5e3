"""kfext beside published schedulers in the model cluster of `kfext simulate`.

`dragon` and `shares` are rules of whole jobs, which `carrier` carries out in place of kfext.
"""
