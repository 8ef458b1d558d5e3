"""GPU sharing without Kubernetes: what a job of high priority loses, and what one of low gets.

    python -m e2e.bench.gpu_share --card cpu|cuda --part wakes|smoke|figures|group|cluster

The jobs are ordinary processes with the hook, and one process has the agent's part: the sockets
through which they come, and the rulings on their card (`processes.py`). No kubelet, no API server.
The card is a real GPU, or the CPU plays one (`cards.py`); everything else is the same for
both, so what the CPU card proves holds for the path to the GPU as well.

u is the part of the time in which a card is busy while a job has it for itself, u_h for the job
of high priority, u_l for the other. Loss: the part of its speed that high loses. Low share: low's
speed beside high, as a part of that alone. Bound: (1 - u_h) / u_l, at most 1: a card that runs one
kernel at a time cannot give low more without a loss for high. Efficiency: low share / bound.
Preemption: from high's beacon, when it becomes busy, until the card has none of low's work left, in
the time of the card. Blocking wake: how much later a thread runs that blocks until then. Pauses of
high are steady, spread by 20 %, or exponential, as between bursts of inference: where they are as
long as a step of low, steady pauses alone would show what the phase of both does.

The part `cluster` is the GPU demo: all of kfext in a cluster of one node. It needs root and the
testbed, all other parts neither.

With `--card cuda` it needs an NVIDIA GPU, and a Python with PyTorch for CUDA, click, google-re2,
NumPy, nvidia-ml-py and structlog: neither root nor a network. How long the driver takes to lock a
process (cuCheckpointProcessLock) is not measured: kfext does not lock processes, and PyTorch has
no call for it.
"""
