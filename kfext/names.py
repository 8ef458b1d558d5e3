"""Every name that kfext writes or reads in the cluster, each with its meaning.

Users see these names in annotations, labels, events and conditions, so they are an interface. No
other module spells a name out.
"""

DOMAIN = "kfext.dev"
API_GROUP = DOMAIN
API_VERSION = "v1alpha1"

# --- where kfext is installed ---------------------------------------------------------------

NAMESPACE = "kfext-system"
"""The namespace of the webhook, the controller, its Lease and the CA."""
GPU_NAMESPACE = "kfext-gpu"
"""The namespace of the agents, and of the reservation pods for shared cards."""

RESERVATION_TEMPLATE = "kfext-reservation"
"""PodTemplate in GPU_NAMESPACE of the reservation pods, which reserve GPUs for slots."""

NEW_NODES_NAMESPACE = "kfext-nodes"
"""The namespace of the placeholders, which make an autoscaler add nodes; nothing else is in it."""

PLACEHOLDER_TEMPLATE = "kfext-placeholder"
"""PodTemplate in NEW_NODES_NAMESPACE of the placeholders, and their PriorityClass."""
PLACEHOLDER_PRIORITY = -10
"""The value of that class: cluster-autoscaler adds no nodes for pods of lower priority."""

RESERVATION_PRIORITY = "kfext-gpu-reservation"
"""PriorityClass of the reservation pods; a ValidatingAdmissionPolicy of that name enforces it."""

PARTS_POLICY = "kfext-gpu-parts"
"""ValidatingAdmissionPolicy and its binding: pods with a GPU share start only where kfext places
them, and only accounts with the verb DECIDE may remove their GATE or write their GPU_TERMS."""
SLOTS_POLICY = "kfext-gpu-slots"
"""ValidatingAdmissionPolicy and its binding: only the agent of a node may write its SharedGPUs."""
AGENT = "kfext-agent"
"""DaemonSet and account of the agents in GPU_NAMESPACE."""

LEASE = "kfext-controller"
"""Lease in NAMESPACE, which the controller renews only while it can actually place jobs."""

SUSPECTS = f"{DOMAIN}/suspects"
"""Annotation of the Lease: JSON with the reason for each suspect node; `kfext nodes` shows it."""

KINDS = f"{DOMAIN}/kinds"
"""Annotation of the Lease: the kinds of jobs that the controller handles, separated by commas. The
webhook holds no other jobs."""

USAGE_RECORD = "kfext-usage"
"""ConfigMap in NAMESPACE with the usage of each namespace."""

CAPACITY_RECORD = "kfext-capacity"
"""ConfigMap in NAMESPACE with the capacity and free capacity of each node, and the reservation. It
names no job."""
CLUSTER_VIEW = "kfext-cluster-view"
"""ClusterRole of people who may see the whole cluster, and Role to read CAPACITY_RECORD."""

CA_SECRET = "kfext-webhook-ca"
WEBHOOK_SERVICE = "kfext-webhook"
PROGRESS_SERVICE = "kfext-progress"
"""Service of the webhook's pods for the programs that post their progress. Its session affinity
sends each client to the same replica."""
WEBHOOK_CONFIGURATION = "kfext"
FIRST_WEBHOOKS = "a.kfext.dev"
"""The configuration of the webhooks that must run before webhooks of other systems."""

# --- labels set by people -------------------------------------------------------------------

MANAGED = f"{DOMAIN}/managed"
"""Label on a namespace; "true" opts its new jobs in. Only administrators set it."""

QUEUE_WEIGHT = f"{DOMAIN}/queue-weight"
"""Annotation on a namespace: its weight where the queue is ordered by usage."""

GPU_SHARING = f"{DOMAIN}/gpu-sharing"
"""Label on a node; with "true" an agent shares its GPUs. Only administrators set it."""

DRAIN = f"{DOMAIN}/drain"
"""Taint on a node, with effect PreferNoSchedule, that `kubectl kfext drain` sets: the gangs there
save their work and stop. With the value DRAIN_BY_FORCE, so do gangs that did not opt in."""
DRAIN_BY_FORCE = "force"

# --- settings: annotations on a job or a namespace, or keys of TrainingPolicy.spec.settings ----

COLOCATION = f"{DOMAIN}/colocation"
NETWORK = f"{DOMAIN}/network"
ELASTIC = f"{DOMAIN}/elastic"
RESIZE = f"{DOMAIN}/resize"
MIGRATE = f"{DOMAIN}/migrate"
PREEMPT = f"{DOMAIN}/preempt"
STALLED = f"{DOMAIN}/stalled"
METRICS = f"{DOMAIN}/metrics"
GPU_SHARE = f"{DOMAIN}/gpu-share"
GPU_MEMORY = f"{DOMAIN}/gpu-memory"
GPU_PRIORITY = f"{DOMAIN}/gpu-priority"
GPU_LOSS_BUDGET = f"{DOMAIN}/gpu-loss-budget"
GPU_MIN_SHARE = f"{DOMAIN}/gpu-min-share"

# --- written by kfext on a job ----------------------------------------------------------------

HELD = f"{DOMAIN}/held"
"""Written by the job webhook when it suspends a job, and removed once the job is resumed, by any
client. Without it, suspend=true means that a person or another system suspended the job."""

PLAN = f"{DOMAIN}/plan"
"""JSON of model.plan.Plan; the controller writes it in the same patch as the change it records."""

STATE = f"{DOMAIN}/state"
"""JSON of model.job_state.JobState, at most 4 KiB, which the controller writes."""

RELEASED = f"{DOMAIN}/released"
"""Marks a job that kfext has released and will not touch again; the value is the reason. Templates
have it too; if the job was never held because of its terms, they alone have it."""

WRITTEN_BY_KFEXT = frozenset({HELD, PLAN, STATE})
"""Removed from a new job, because a copied manifest must not carry over another job's history.
After that, only accounts with the verb DECIDE may add or change them."""

MARKS_POLICY = "kfext-marks"
"""ValidatingAdmissionPolicy and its binding, which keep accounts without the verb DECIDE from
updating WRITTEN_BY_KFEXT."""

DECIDE = "decide"
"""Verb on TrainingPlans in the whole cluster that lets an account write WRITTEN_BY_KFEXT."""

# --- written by kfext on templates and pods ---------------------------------------------------

GATE = f"{DOMAIN}/placement"
"""Scheduling gate on the pods of a gang. One patch removes it and adds the pin."""

PLAN_GENERATION = f"{DOMAIN}/plan-generation"
"""Annotation on templates and pods: the number of the plan that the pod was created under."""

PLACES = f"{DOMAIN}/places"
"""Annotation on templates and pods of a gang that is born pinned: the uid of the job, and the node
of each replica of the type. The patch that starts the job writes it, and it is removed once all
pods are bound, so a template has it only while the gang is being created."""

RUNTIME_PATCH = f"{DOMAIN}/manager"
"""Manager of kfext's entry in the runtimePatches of a TrainJob, which carries annotations to pods.
Trainer requires a domain and a path."""

PORT_BASE = f"{DOMAIN}/port-base"
"""Annotation on templates and pods: the first port of a job on the host network. Without it the
pods have their own network. The patch that starts the job writes it."""

INTERFACES = f"{DOMAIN}/interfaces"
"""Annotation on templates and pods next to PORT_BASE: the interfaces for training traffic from the
policy, separated by commas."""

PLACEHOLDER_OF = f"{DOMAIN}/placeholder-of"
"""Label in NEW_NODES_NAMESPACE on a placeholder: the uid of its job."""

GPU_SLOT = f"{DOMAIN}/gpu-slot"
"""Label in GPU_NAMESPACE on a pod that reserves a GPU: the slot of its node."""

GPU_SLOTS = f"{DOMAIN}/gpu-slots"
"""Annotation on templates and pods: the GPU share that each pod requests, in the order of replica
indices, separated by commas, such as `50@0` for 50 hundredths of slot 0. The patch that starts the
job writes it."""

GPU_TERMS = f"{DOMAIN}/gpu-terms"
"""Annotation on a pod: JSON of model.gpu.GpuShare, the terms on which it shares its GPU. The
patch that pins the pod writes it, and only accounts with the verb DECIDE may."""

CHECKPOINT_REQUEST = f"{DOMAIN}/checkpoint-request"
"""Annotation on a pod: the number of the last checkpoint that kfext has asked its job for; the job
reads it in its control file. Pods are not guarded like WRITTEN_BY_KFEXT: whoever may edit a pod may
ask its job for a checkpoint too, and nothing else follows from the number."""

POST_AUTHORITY = f"{DOMAIN}/post-authority"
"""Annotation on a pod that may post its progress: the authority, in PEM, that signs the certificate
of PROGRESS_SERVICE. The pod webhook writes it, and the pod reads it as a file."""

ISTIO_INJECT = "sidecar.istio.io/inject"
"""kfext sets it to "false" on templates that lack it: with a sidecar a pod would never end."""

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
"""Annotation on a pod: "true" keeps Karpenter from removing the node of the pod."""
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""Annotation on a pod: "false" keeps cluster-autoscaler from removing the node of the pod."""

# --- names of other systems that kfext reads ----------------------------------------------------

ISTIO_REVISION = "istio.io/rev"
"""Label on a pod: the revision of Istio that injects its sidecar."""
ISTIO_DATAPLANE = "istio.io/dataplane-mode"
"""Label on a pod: `ambient` for Istio's mesh without sidecars."""
KATIB_COLLECTOR = "metrics-logger-and-collector"
"""Container that Katib adds to the pod that it measures. The training container then prints into a
file, and this container prints the file. Source: katib pkg/webhook/v1beta1/pod."""
LINKERD_INJECT = "linkerd.io/inject"
"""Annotation on a pod: `enabled` or `ingress` for Linkerd's proxy."""

TRAINING_GROUP = "kubeflow.org"
JOB_NAME = "training.kubeflow.org/job-name"
JOB_ROLE = "training.kubeflow.org/job-role"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
OPERATOR_NAME = "training.kubeflow.org/operator-name"
TRAINING_OPERATOR = "kubeflow.org/training-operator"
"""The operator runs a job only if runPolicy.managedBy is unset or has this value."""

DEFAULT_SCHEDULER = "default-scheduler"
"""The schedulerName of pods that kube-scheduler binds: kfext leaves all other pods alone."""

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
NATIVE_GPU = "nvidia.com/gpu"
HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
"""Whether kube-scheduler must fulfil a term of an affinity, or only tries to."""

# --- phases of a TrainingPlan -------------------------------------------------------------------

QUEUED = "Queued"
"""Suspended by kfext; waits for capacity."""
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
"""Capacity was found and claimed; the job was unsuspended."""
REASON_NO_ROOM = "NoRoom"
"""No node or set of nodes has enough capacity now; that may change."""
REASON_TOO_BIG = "TooBig"
"""The job would not fit even if the cluster were empty."""
REASON_NO_ELIGIBLE_NODE = "NoEligibleNode"
"""Selectors, affinity, taints or cordons exclude every node."""
REASON_UNMODELLED = "Unmodelled"
"""The pods have terms that kube-scheduler judges and kfext does not model; the job runs as on plain
Kubernetes, or stays suspended if its colocation is required."""
REASON_WAITING_FOR_VOLUME = "WaitingForVolume"
"""A volume claim of the pods is not bound yet."""
REASON_QUOTA = "QuotaExceeded"
"""A ResourceQuota of the namespace would refuse a pod or service of the job: together they exceed
it, or it demands requests or limits that a template leaves out."""
REASON_RESERVED = "Reserved"
"""The job would fit, but the capacity is reserved for a job that has waited longer."""
REASON_WAITING_FOR_NODES = "WaitingForNodes"
"""kfext has asked the autoscaler for nodes for the whole gang, or will when its turn comes."""
REASON_NO_NEW_NODES = "NoNewNodes"
"""The autoscaler did not add the nodes; kfext asks again later."""
REASON_WAITING_FOR_OPERATOR = "WaitingForOperator"
"""The operator still has many pods to create for earlier jobs; this job claims no capacity yet."""
REASON_WAITING_FOR_CARD = "WaitingForCard"
"""A GPU that the job shares is not reserved yet, or the agent has not reported it."""
REASON_CARD_TIMEOUT = "CardTimeout"
"""A shared GPU was not available in time; the job was suspended, and will start elsewhere."""
REASON_CARD_LOST = "CardLost"
"""The GPU that the job shared is no longer reserved; the job was suspended."""
REASON_EVICTED = "Evicted"
"""The job lost too much speed to the other jobs on its GPU, or they to it; it was suspended."""
REASON_SHARE_REFUSED = "ShareRefused"
"""The job cannot share a GPU as it is written; the message says why."""
REASON_CREATE_TIMEOUT = "CreateTimeout"
"""The operator did not create all pods in time; the job was suspended again."""
REASON_BIND_TIMEOUT = "BindTimeout"
"""kube-scheduler did not bind a pinned pod in time; the pod was planned again."""
REASON_REPLANNED = "Replanned"
"""The capacity was gone before the gate was removed; the gang was planned again."""
REASON_RELEASED = "Released"
"""kfext released the job; it runs as on plain Kubernetes."""
REASON_NOT_MANAGED = "NotManaged"
"""The job's namespace is not, or no longer, managed, so kfext released the job."""
REASON_RELEASED_BY_USER = "ReleasedByUser"
"""A person released the job with `kubectl kfext release`."""
REASON_SUSPENDED_BY_USER = "SuspendedByUser"
REASON_WAITING_FOR_PODS = "WaitingForPods"
"""The operator has not created every pod yet."""
REASON_WAITING_FOR_BIND = "WaitingForBind"
REASON_WAITING_FOR_SUSPEND = "WaitingForSuspend"
"""Pods of an earlier start are still ending; resuming now would fail the job."""
REASON_BACKING_OFF = "BackingOff"
REASON_SETTINGS_INVALID = "SettingsInvalid"
REASON_SHARE_EDITED = "ShareEdited"
"""The annotations of a running job ask for other GPU shares than it has; they apply from its next
start. Also the type of the condition, which is shown only while it is true."""
REASON_FOREIGN_GATE = "ForeignGate"
"""A scheduling gate of another system holds a pod of the gang."""
REASON_WRITE_REFUSED = "WriteRefused"
"""The API server will never accept a change that kfext must make to the job or its pods, because of
a policy or the size of the object; the message quotes it."""
REASON_FINISHED = "Finished"
REASON_HOST_NETWORK = "HostNetwork"
"""The job's pods use the network of their node."""
REASON_NETWORK_POLICIES_BYPASSED = "NetworkPoliciesBypassed"
"""The job's pods use the network of their node, where NetworkPolicies that select them have no
effect."""
REASON_POD_NETWORK = "PodNetwork"
"""The host network was requested, but the job's pods have their own; the message says why."""

CPU_USE_KNOWN = "CpuUseKnown"
"""Condition, shown only while it is not true: whether the CPU use of the job is known."""
REASON_CPU_USE_PENDING = "CpuUsePending"
"""The pod has not run for long enough to be measured."""
REASON_CPU_USE_FORBIDDEN = "CpuUseForbidden"
"""kfext may not read the metrics API: an administrator has not granted the permission, or not for
this namespace."""
REASON_CPU_USE_UNAVAILABLE = "CpuUseUnavailable"
"""The cluster has no metrics API, or it returns no usable answer in time."""

PROGRESS_KNOWN = "ProgressKnown"
"""Condition: whether the progress of the job is known; its reasons follow."""
REASON_RECOGNISED = "Recognised"
"""The job's log or its posts show its progress."""
REASON_DIVERGED = "Diverged"
"""The last value of the job's metric is not a number, or infinite."""
REASON_NOTHING_RECOGNISED = "NothingRecognised"
"""Nothing in the job's log looks like progress; the setting `metrics` can name it."""
REASON_LOG_FORBIDDEN = "LogForbidden"
"""kfext may not read the logs of the job's namespace."""
REASON_LOG_UNAVAILABLE = "LogUnavailable"
"""Several reads of the job's log failed in a row; kfext tries again."""
KNOWN = frozenset({REASON_RECOGNISED, REASON_DIVERGED})
"""The reasons of the condition PROGRESS_KNOWN while it is true."""

PROGRESSING = "Progressing"
"""Condition, shown only while it is not true: false while the job runs without progress; unknown
while the log cannot be read, with the reasons above."""
REASON_STALLED = "Stalled"
"""The job has been silent for much longer than it ever was. Also the reason of a job that was
stopped because of this and resumes from its last checkpoint."""

RESIZED = "Resized"
"""Condition of a job that opted in to a policy of the companion: whether any of its pods has a
different CPU size than the user wrote; its reasons follow."""
REASON_CPU_MOVED = "CpuMoved"
"""kfext changed the CPU of the job's pods; the message says why."""
REASON_WOULD_MOVE = "WouldMoveCpu"
"""kfext would change CPU, but the job or the TrainingPolicy only lets it observe."""
REASON_NOTHING_TO_MOVE = "NothingToMove"
"""The CPU of the job needs no change."""
REASON_STANDS_DOWN = "StandsDown"
"""The job is ineligible: a policy cannot change it for now; the message says why."""
REASON_RESTS = "Rests"
"""A policy is disabled for the job, because its change did not help or the user took over."""
REASON_RESIZE_REFUSED = "ResizeRefused"
"""The API server or the kubelet refused a change of CPU; the message quotes it."""
REASON_TOO_EARLY = "TooEarly"
"""The growth of the job or its use of CPU is not known yet."""
REASON_CPU_RESTORED = "CpuRestored"
"""The job has again the CPU that the user wrote."""

SCALED = "Scaled"
"""Condition of a job that opted in to be scaled: whether its number of workers differs from the
requested size; its reasons follow."""
REASON_AS_ASKED = "AsAsked"
"""The job has its requested size."""
REASON_SHRUNK = "Shrunk"
"""kfext scaled the job down for a waiting job, or the job started with fewer workers."""
REASON_GROWN = "Grown"
"""kfext scaled the job up; the message says why."""
REASON_RESCALING = "Rescaling"
"""The number of workers is being changed."""
REASON_AWAITS_CHECKPOINT = "AwaitsCheckpoint"
"""kfext is about to change the number of workers, as soon as the job has saved its work."""
REASON_NO_CHECKPOINT = "NoCheckpointSeen"
"""The job has shown no checkpoint and would lose work, so kfext does not change it."""
REASON_WOULD_SCALE = "WouldScale"
"""kfext would change the number of workers, but the TrainingPolicy only lets it observe."""
REASON_SCALE_REFUSED = "ScaleRefused"
"""The API server refused a new number of workers; the message quotes it."""

MOVED = "Moved"
"""Condition of a job that opted in to be moved: whether kfext has moved it; its reasons follow, and
AwaitsCheckpoint, NoCheckpointSeen and StandsDown as above."""
REASON_MOVING = "Moving"
"""The job was stopped at a checkpoint, and resumes elsewhere; the message says where and why."""
REASON_TOGETHER = "Together"
"""The pods of the job are on as few nodes as possible, perhaps because kfext moved them there."""
REASON_STAYS = "Stays"
"""No move pays now; the message says why."""
REASON_WOULD_MIGRATE = "WouldMigrate"
"""kfext would move the job, but the TrainingPolicy only lets it observe."""
REASON_MOVE_REFUSED = "MoveRefused"
"""The API server refused to suspend the job for its move; the message quotes it."""
REASON_NO_SHARED_VOLUME = "NoSharedVolume"
"""A volume of the job is local to its node, so another node may not have its checkpoints."""

STOPPED = "Stopped"
"""Condition of a job that opted in to be stopped for jobs of higher priority, or runs on a node
that is being drained: whether kfext has stopped it; its reasons follow, and AwaitsCheckpoint,
NoCheckpointSeen, StandsDown, Rests and NoSharedVolume as above."""
REASON_STOPPED = "Stopped"
"""The job was stopped for a job of higher priority; it resumes from its last checkpoint."""
REASON_MAY_STOP = "MayBeStopped"
"""The job runs, and may be stopped for a job of higher priority."""
REASON_WOULD_STOP = "WouldStop"
"""kfext would stop the job, but the TrainingPolicy only lets it observe."""
REASON_STOP_REFUSED = "StopRefused"
"""The API server refused to suspend the job for a job of higher priority; the message quotes it."""
REASON_DRAINED = "Drained"
"""The job was stopped because one of its nodes is drained; it resumes from its last checkpoint."""
REASON_ON_DRAINED_NODE = "OnDrainedNode"
"""One of the job's nodes is drained, but the job stays there for now; the message says why."""
REASON_PREEMPTING = "Preempting"
"""Jobs of lower priority save their work and stop for this job, which has no capacity yet."""

# Verdicts of admission: the change to a job or pod, or the reason for no change.
REASON_HELD = "Held"
"""The job was suspended until kfext has a plan for all of its pods."""
REASON_NOT_HELD = "NotHeld"
"""The job starts at once, as on plain Kubernetes; the message says why."""
REASON_HANDS_OFF = "HandsOff"
"""kfext does not handle this job; the message says why."""
REASON_MADE_ELASTIC = "MadeElastic"
"""A PyTorchJob that opted in to elasticity got an elasticPolicy; the message says what changed."""
REASON_TEMPLATES_EDITED = "TemplatesEdited"
REASON_COPIED_MARKS_REMOVED = "CopiedMarksRemoved"
"""The manifest was copied from a job that kfext had handled; its history was removed."""
REASON_GATED = "Gated"
