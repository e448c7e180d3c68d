"""The loops: supervised fine-tuning and reinforcement learning."""
