"""Adapters to the software of a node with GPUs: kubelet's device plugins, pod resources, NVML."""
