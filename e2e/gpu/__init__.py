"""Simulated GPUs for machines without any; their names say so."""
