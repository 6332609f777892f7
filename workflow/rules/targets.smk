# What can be asked for beside all: a stage (`snakemake rl`) and an instance, by its link (`snakemake
# results/demo/rl/grpo`). These rules have no output, so that two variants of a run may be made at a time.

ALL = wanted(GRAPH.nodes)
LINKS = str(file_of_run(KEYS))


rule links:
    """Move the links under results/<run>/ to today's results; `onstart` has done it when this job runs."""
    input:
        lambda wildcards: list(map(ancient, ALL(wildcards))),
    output:
        touch(LINKS),


for _name in GRAPH.nodes if workflow.is_main_process else ():

    rule:
        name:
            f"{RESULTS}/{_name}"
        input:
            linked(_name),


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
