"""Cases on real nodes with shared GPU cards."""
