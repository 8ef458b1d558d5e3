"""A model of a cluster on which the real planner runs, and which a seed makes the same each time.

Time jumps from event to event, and the training of a job is a number that grows in between. The API
server, the training-operator, kube-scheduler and the kubelets are as small as decisions allow and
keep their rules. kfext itself makes all patches, reviews and decisions. `cluster` puts the parts
together. Times are in seconds and CPU in millicores, unless a name says otherwise.
"""
