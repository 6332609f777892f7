"""Variants beside a baseline, and what `make pretrained`, `compare` and `real` write before they run."""
