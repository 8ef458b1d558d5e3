"""The code inside a job that shares a GPU: standard library only, and syntax of Python 3.8.

The agent copies these files to each node as the package `kfext_hook`, beside `sitecustomize.py`,
and mounts the folder into the job's containers. So the files import each other relatively, and
import nothing else of kfext.
"""
