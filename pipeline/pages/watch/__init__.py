"""A page on a running workflow: stages, curves, samples, GPUs, queue, errors."""
