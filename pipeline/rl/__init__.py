"""Reinforcement learning: GRPO and what the paper compares it to (sections 4 and 5.2)."""
