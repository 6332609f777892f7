"""Stage `tokens`: the run's own tokenizer, memory-mapped token files, exact mixtures."""
