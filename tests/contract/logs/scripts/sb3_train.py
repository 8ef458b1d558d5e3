"""Stable-Baselines3: the tables of PPO and of DQN, whichever the argument names."""
# mypy: ignore-errors

import sys

import stable_baselines3

algorithm = getattr(stable_baselines3, sys.argv[1].upper())
model = algorithm("MlpPolicy", "CartPole-v1", verbose=1, seed=0, device="cpu")
model.learn(total_timesteps=6000, log_interval=1 if sys.argv[1] == "ppo" else 40)
