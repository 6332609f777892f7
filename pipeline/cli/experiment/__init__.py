"""Variants beside a baseline, and what `make pretrained`, `compare` and `real` run on."""
