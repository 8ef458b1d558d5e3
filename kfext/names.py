"""Every name that kfext writes or reads in the cluster, each with its contract.

A user meets these names in annotations, labels, events and conditions; they are the interface.
Nothing else in the code spells one out.
"""

DOMAIN = "kfext.dev"
API_GROUP = DOMAIN
API_VERSION = "v1alpha1"

# --- where kfext is at home -----------------------------------------------------------------

NAMESPACE = "kfext-system"
"""Where the webhook, the controller, their Lease and the CA live."""

LEASE = "kfext-controller"
"""Lease in NAMESPACE; renewed by the controller only while it can really place jobs."""

CA_SECRET = "kfext-webhook-ca"
WEBHOOK_SERVICE = "kfext-webhook"
WEBHOOK_CONFIGURATION = "kfext"

# --- labels set by people -------------------------------------------------------------------

MANAGED = f"{DOMAIN}/managed"
"""Label on a namespace; "true" opts its new jobs in. Set by an administrator, never by kfext."""

# --- settings: annotations on a job, a namespace, or keys of TrainingPolicy.spec.settings ------

COLOCATION = f"{DOMAIN}/colocation"
NETWORK = f"{DOMAIN}/network"
ELASTIC = f"{DOMAIN}/elastic"
RESIZE = f"{DOMAIN}/resize"
MIGRATE = f"{DOMAIN}/migrate"
METRICS = f"{DOMAIN}/metrics"
GPU_SHARE = f"{DOMAIN}/gpu-share"
GPU_MEMORY = f"{DOMAIN}/gpu-memory"
GPU_PRIORITY = f"{DOMAIN}/gpu-priority"
GPU_LIMIT = f"{DOMAIN}/gpu-limit"

# --- written by kfext on a job ----------------------------------------------------------------

HELD = f"{DOMAIN}/held"
"""Written by the job webhook when it suspends a job, kept while kfext may unsuspend it.
suspend=true without it means that a person or another system suspended the job."""

PLAN = f"{DOMAIN}/plan"
"""JSON of model.plan.Plan, written by the controller in the same patch as what it records."""

STATE = f"{DOMAIN}/state"
"""JSON of model.state.JobState, at most 4 KiB, written by the controller."""

RELEASED = f"{DOMAIN}/released"
"""Sticky, with the reason as value: kfext keeps its hands off this job. Also in the template."""

WRITTEN_BY_KFEXT = frozenset({HELD, PLAN, STATE})
"""Removed from a CREATE: a copied manifest must not bring another job's history along."""

# --- written by kfext on templates and pods ---------------------------------------------------

GATE = f"{DOMAIN}/placement"
"""Scheduling gate on the pods of a gang: removed together with the pin, in one patch."""

PLAN_GENERATION = f"{DOMAIN}/plan-generation"
"""Annotation on templates and pods: the number of the plan under which the pod was created."""

PORT_BASE = f"{DOMAIN}/port-base"
"""Annotation on templates and pods: the first port of a job whose pods use their node's network;
its absence means that they have their own. Written in the patch that starts the job."""

INTERFACES = f"{DOMAIN}/interfaces"
"""Annotation on templates and pods beside PORT_BASE: the interfaces for training traffic, as the
policy names them, with commas."""

ISTIO_INJECT = "sidecar.istio.io/inject"
"""A sidecar never ends, so the training pod would not either. Set to "false" where unset."""

# --- names of others that kfext reads -----------------------------------------------------------

TRAINING_GROUP = "kubeflow.org"
TRAINING_VERSION = "v1"
JOB_NAME = "training.kubeflow.org/job-name"
JOB_ROLE = "training.kubeflow.org/job-role"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
OPERATOR_NAME = "training.kubeflow.org/operator-name"
TRAINING_OPERATOR = "kubeflow.org/training-operator"
"""The only value of runPolicy.managedBy, besides unset, that makes the operator run a job."""

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
HOSTNAME = "kubernetes.io/hostname"
NAMESPACE_NAME = "kubernetes.io/metadata.name"

# --- phases of a TrainingPlan -------------------------------------------------------------------

QUEUED = "Queued"
"""Suspended by kfext; waits for room."""
PLANNED = "Planned"
"""Unsuspended with a plan; the operator is creating its pods."""
GATED = "Gated"
"""Every pod exists; pins are being written."""
BINDING = "Binding"
"""Every pod is pinned; kube-scheduler binds them."""
PLACED = "Placed"
SUSPENDED = "Suspended"
"""Suspended by a person or another system."""
PHASE_RELEASED = "Released"
FINISHED = "Finished"
PHASES = (QUEUED, PLANNED, GATED, BINDING, PLACED, SUSPENDED, PHASE_RELEASED, FINISHED)

# --- reasons: of events, conditions and verdicts -------------------------------------------------

REASON_PLACED = "Placed"
"""All pods are bound where the plan says."""
REASON_PLANNED = "Planned"
"""Room was found and reserved; the job was unsuspended."""
REASON_NO_ROOM = "NoRoom"
"""No node, and no set of nodes, has the free resources now; more may come."""
REASON_TOO_BIG = "TooBig"
"""The job does not fit even the empty cluster."""
REASON_NO_ELIGIBLE_NODE = "NoEligibleNode"
"""Selectors, affinity, taints or cordons exclude every node."""
REASON_QUOTA = "QuotaExceeded"
"""A ResourceQuota of the namespace would refuse a pod or service of the job: not all have room
below it, or it demands requests or limits that a template leaves out."""
REASON_RESERVED = "Reserved"
"""There is room, but it is kept for a job that has waited longer, until enough is free for that."""
REASON_WAITING_FOR_OPERATOR = "WaitingForOperator"
"""The operator still has many pods of earlier jobs to create; room is not taken before its time."""
REASON_CREATE_TIMEOUT = "CreateTimeout"
"""The operator did not create all pods in time; the job was suspended again."""
REASON_BIND_TIMEOUT = "BindTimeout"
"""kube-scheduler did not bind a pinned pod in time; the pod was re-planned."""
REASON_REPLANNED = "Replanned"
"""The room was gone at the barrier; the gang was planned anew before its release."""
REASON_RELEASED = "Released"
"""kfext let go of the job; it runs as on plain Kubernetes."""
REASON_RELEASED_BY_USER = "ReleasedByUser"
"""`kubectl kfext release`: a person took the job back from kfext."""
REASON_SUSPENDED_BY_USER = "SuspendedByUser"
REASON_WAITING_FOR_PODS = "WaitingForPods"
"""The operator has not created every pod yet."""
REASON_WAITING_FOR_BIND = "WaitingForBind"
REASON_WAITING_FOR_SUSPEND = "WaitingForSuspend"
"""Pods of an earlier start still end; resuming now would fail the job."""
REASON_BACKING_OFF = "BackingOff"
REASON_SETTINGS_INVALID = "SettingsInvalid"
REASON_FOREIGN_GATE = "ForeignGate"
"""A scheduling gate of another system holds a pod of the gang."""
REASON_FINISHED = "Finished"
REASON_HOST_NETWORK = "HostNetwork"
"""The job's pods use the network of their node."""
REASON_NETWORK_POLICIES_BYPASSED = "NetworkPoliciesBypassed"
"""The job's pods use the network of their node, where NetworkPolicies that select them do not hold.
"""
REASON_POD_NETWORK = "PodNetwork"
"""The host network was asked for and the job's pods have their own; the sentence says why."""

# Verdicts of admission: what was done to a job or pod, or why it was left alone.
REASON_HELD = "Held"
"""The job was suspended until kfext has found a place for all of its pods."""
REASON_NOT_HELD = "NotHeld"
"""The job starts at once, as on plain Kubernetes; the sentence says why."""
REASON_HANDS_OFF = "HandsOff"
"""Another system, or nobody, runs this job; kfext changes nothing on it."""
REASON_TEMPLATES_EDITED = "TemplatesEdited"
REASON_COPIED_MARKS_REMOVED = "CopiedMarksRemoved"
"""The manifest was copied from a job that kfext had handled; its history was removed."""
REASON_GATED = "Gated"
