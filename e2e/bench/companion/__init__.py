"""Training jobs that share the CPU of one real node, under plain Kubernetes and under kfext.

Pods with limits equal to requests never contend, so in every arm these pods are Burstable, with one
thread, a CPU request of 20m and no limit. Only the `Split` jobs have limits, good or bad.

The node has one CPU of its own. On a node with 1400m of two CPUs, three spinning pods used 0.50,
0.25 and 0.25 of it in the ten measured seconds, so under plain Kubernetes chance would decide which
of three equal jobs is faster; on one CPU each uses a third. With other work on the machine, three
pods on two CPUs used only a third of the CPU that they were due.
Each benchmark begins with a calibration, which checks that pods get the CPU their requests imply.
"""
