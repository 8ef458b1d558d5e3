"""A real Kubernetes cluster on one machine: control plane, kubelets, operator, fake nodes."""
