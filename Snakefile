"""DeepSeekMath, end to end. The configuration decides the graph (workflow/graph.py); the rules only run it."""

from snakemake.utils import min_version

min_version("9.19")


configfile: "configs/default.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/stages.smk"


rule all:
    default_target: True
    input:
        marks(*NAMES),
