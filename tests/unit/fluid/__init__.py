"""A fluid model of clusters: nodes, jobs that train, and the real planner that drives them.

Time goes from event to event, and training is a number that grows in between; API server, operator,
kube-scheduler and kubelets are as small as they can be and keep their rules. All patches, webhooks
and decisions are those of kfext. `cluster` puts it together, `rules` has what must always hold,
`compared` what a policy brought, `report` prints that for many seeds.
"""
