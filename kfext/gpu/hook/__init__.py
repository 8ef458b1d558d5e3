"""What runs inside a job that shares a GPU: standard library only, and syntax of Python 3.8.

The agent copies these files to each node as the package `kfext_hook`, beside `sitecustomize.py`,
and the folder is mounted into the job's containers. So they import each other relatively, and
nothing else of kfext.
"""
