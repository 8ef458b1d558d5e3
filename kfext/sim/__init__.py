"""A model of a cluster with the real planner, reproducible from a seed.

Time jumps from event to event, and the training of a job is a number that grows in between. The API
server, the training-operator, kube-scheduler and the kubelets are reduced to the rules that matter
for decisions. kfext itself makes all patches, reviews and decisions. `cluster` assembles the parts.
Times are in seconds and CPU in millicores, unless a name says otherwise.
"""
