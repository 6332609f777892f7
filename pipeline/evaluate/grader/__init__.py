"""Comparison of two final answers: spelling, tokens, trees, values and the typed rules of equivalence."""
