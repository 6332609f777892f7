"""DeepSeekMath, end to end. The configuration decides the graph (workflow/graph.py); the rules run its jobs.

A result is a real file, results/<run>/store/<stage>/<instance>/<key>/manifest.json, and its key covers all that
decides its bytes (workflow/keys.py). So a missing file is the only reason to run, and Snakemake's options mean
what its manual says.
"""

from snakemake.utils import min_version

min_version("9.19")


configfile: f"{workflow.basedir}/configs/default.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/miniweb.smk"
include: "workflow/rules/crawl.smk"
include: "workflow/rules/annotate.smk"
include: "workflow/rules/corpus.smk"
include: "workflow/rules/decontaminate.smk"
include: "workflow/rules/tokens.smk"
include: "workflow/rules/cpt.smk"
include: "workflow/rules/sft.smk"
include: "workflow/rules/reward.smk"
include: "workflow/rules/rl.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/likelihood.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/targets.smk"


localrules:
    all,


rule all:
    default_target: True
    input:
        LINKS,
        ALL,
