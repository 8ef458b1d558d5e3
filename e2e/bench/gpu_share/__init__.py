"""GPU sharing without Kubernetes: the loss of a job of high priority, and the speed of a low one.

    python -m e2e.bench.gpu_share --card cpu|cuda --part wakes|smoke|figures|group|cluster

The jobs are ordinary processes with the hook, and one process replaces the agent: it has the
sockets of the jobs, and arbitrates their card (`processes.py`). No kubelet, no API server. The card
is a real GPU, or simulated by the CPU (`cards.py`); everything else is the same for both, so
results of the CPU card hold for the path to the GPU as well.

u is the part of the time that a job alone keeps the card busy, u_h for the job of high
priority, u_l for the other. Loss: the part of its speed that high loses. Low share: low's speed
beside high, relative to its speed alone. Bound: (1 - u_h) / u_l, at most 1: a card that runs one
kernel at a time cannot grant low more without a loss for high. Efficiency: low share / bound.
Preemption: the time from high's beacon, when it becomes busy, until the card has finished low's
work, by the card's clock. Blocking wake: the delay of a thread that blocks until then. Pauses of
high are steady, spread by 20 %, or exponential, as between bursts of inference: if they are as long
as a step of low, steady pauses alone would show an effect of the phase.

The part `cluster` is the GPU demo: all of kfext in a cluster of one node. Only this part needs root
and the testbed.

With `--card cuda` it needs an NVIDIA GPU, and a Python with PyTorch for CUDA, click, google-re2,
NumPy, nvidia-ml-py and structlog, but neither root nor a network. The time of the driver to lock a
process (cuCheckpointProcessLock) is not measured: kfext does not lock processes, and PyTorch has no
call for it.
"""
