"""What a run will cost, from its configuration alone: tokens, FLOPs, GPU-hours, memory per GPU, disk."""
