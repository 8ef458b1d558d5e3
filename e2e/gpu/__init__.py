"""Simulated GPUs, and stand-ins for NVIDIA's device plugin and container runtime."""
