"""Evaluation: any model on any benchmark, and the one grader that serves both metric and reward (paper section 8)."""
