"""The trainer: data, clinical models, rewards, rollouts and the loop around `rrgkern`."""
