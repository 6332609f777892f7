# What can be asked for beside all: a stage (`snakemake rl`) and an instance, by its link (`snakemake
# results/demo/rl/grpo`).

ALL = wanted(GRAPH.nodes)
LINKS = str(file_of_run(KEYS))


rule links:
    """Move the links under results/<run>/ to today's results; `onstart` has done it when this job runs."""
    input:
        lambda wildcards: list(map(ancient, ALL(wildcards))),
    output:
        touch(LINKS),


rule link:
    """Move the link of an instance to today's result, likewise."""
    input:
        linked,
    output:
        update(directory(f"{RESULTS}/{{instance}}")),
    wildcard_constraints:
        instance=f"({'|'.join(NAMES)})(/.+)?",


for _stage in STAGES:

    rule:
        name:
            _stage.name
        input:
            wanted(GRAPH.names(_stage.name)),


if workflow.is_main_process:
    try:
        JOB.check({program.module: workflow.get_rule(program.rule).input for program in PROGRAMS})
    except InputError as error:
        refuse(str(error))

for _rule in workflow.rules:
    if "launcher" in _rule.resources:  # those of programs with ranks
        light_when_linked(JOB, _rule.resources, workflow.get_rule("report_page").resources)
