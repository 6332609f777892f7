"""Reinforcement learning with GRPO (paper section 4)."""
