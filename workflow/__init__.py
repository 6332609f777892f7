"""What Snakemake runs: the graph of stage instances, what of it is current, and the rules."""
