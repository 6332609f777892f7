"""Evaluation: any model on any benchmark, and the one grader that serves metric and reward (section 8)."""
