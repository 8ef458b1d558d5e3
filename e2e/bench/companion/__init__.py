"""Training jobs that share the CPU of one real node, under plain Kubernetes and under kfext.

Requests = limits would show nothing here, for such pods never contend: the pods are Burstable, with
one thread, a CPU request of 20m and no limit, and are the same in every arm. Only the `Split`
jobs have limits, written badly or well.

The node has one CPU of its own. On a node of 1400m of two CPUs three spinning pods got 0.50, 0.25
and 0.25 of it in the ten seconds that were measured, so that under plain Kubernetes chance would
have a part in which of three equal jobs is faster; on one CPU they get a third each. And while
other work took what it could, three pods on two CPUs got a third of what they should.
Each benchmark begins by trying whether requests on the node do what arithmetic says.
"""
