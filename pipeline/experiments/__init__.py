"""Variants beside a baseline, and what `make pretrained`, `compare`, `real` and `corpus-quality` run on."""
