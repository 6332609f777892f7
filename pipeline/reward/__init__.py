"""Reward models: Math-Shepherd step labels, training, step scores (paper section 4.2)."""
