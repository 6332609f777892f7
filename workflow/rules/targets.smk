# What can be asked for beside all: a stage (`snakemake rl`), an instance (`snakemake rl/grpo`, or a file at its link).

ALL = wanted(GRAPH.nodes)
LINKS = str(file_of_run(KEYS))


localrules:
    links,


rule links:
    """Move the links under results/<run>/ to today's results; `onstart` has done it when this job runs."""
    input:
        lambda wildcards: list(map(ancient, ALL(wildcards))),
    output:
        LINKS,
    log:
        "<logs>/links.log",
    conda:
        "../../environment.yml"
    shell:
        "touch {output:q} 2> {log:q}"


for _stage in STAGES:

    rule:
        name:
            _stage.name
        input:
            wanted(GRAPH.names(_stage.name)),


for _target in dict.fromkeys(sys.argv[1:] if workflow.is_main_process else []):

    if not workflow.is_rule(_target) and (_name := instance_of(GRAPH, _target)):

        rule:
            name:
                _target
            input:
                wanted([_name]),


if workflow.is_main_process:
    try:
        JOB.check({program.module: workflow.get_rule(program.rule).input for program in PROGRAMS})
    except InputError as error:
        refuse(str(error))

for _rule in workflow.rules:
    if "launcher" in _rule.resources:  # those of programs with ranks
        light_when_linked(JOB, _rule.resources, workflow.get_rule("report_page").resources)
