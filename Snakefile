"""DeepSeekMath, end to end. The configuration decides the graph (workflow/graph.py); the rules run its jobs.

A result is a real file, results/<run>/store/<stage>/<instance>/<key>/manifest.json, and its key covers all that
decides its bytes (workflow/keys.py). So a missing file is the only reason to run, and Snakemake's options mean
what its manual says.
"""

from snakemake.utils import min_version

min_version("9.19")


configfile: f"{workflow.basedir}/configs/default.yaml"


include: "workflow/rules/common.smk"


for _stage in STAGES:

    include: f"workflow/rules/{_stage.name}.smk"


include: "workflow/rules/targets.smk"


localrules:
    all,


rule all:
    default_target: True
    input:
        LINKS,
        ALL,
