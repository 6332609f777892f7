"""DeepSeekMath, end to end. The configuration decides the graph (pipeline/config/graph.py); the rules only run it."""

from snakemake.utils import min_version

min_version("9.19")


configfile: "configs/default.yaml"


include: "workflow/rules/common.smk"


pathvars:
    results=RESULTS,
    logs=f"{RESULTS}/logs",


include: "workflow/rules/miniweb.smk"
include: "workflow/rules/crawl.smk"
include: "workflow/rules/corpus.smk"
include: "workflow/rules/decontaminate.smk"
include: "workflow/rules/tokens.smk"
include: "workflow/rules/cpt.smk"
include: "workflow/rules/sft.smk"
include: "workflow/rules/reward.smk"
include: "workflow/rules/rl.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/report.smk"


# Every manifest is listed, not the report alone: a stage that failed after a change must never hide behind an old report.
rule all:
    default_target: True
    input:
        manifests(*STAGES),
