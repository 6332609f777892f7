"""Forecast of a run from its configuration alone: tokens, FLOPs, GPU-hours, memory per GPU and disk."""
