"""Cases on real nodes: kubelets, containers, kfext installed as pods, real training."""
