"""Adapters to what a node with GPUs runs: kubelet's device plugins and pod resources, and NVML."""
