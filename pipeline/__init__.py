"""DeepSeekMath, end to end: one package or module per stage, each an argv program; none imports Snakemake."""
