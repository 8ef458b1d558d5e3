"""Forecasts of the starts of waiting jobs: a planner runs ahead of the cluster."""
