# Models asked the questions of benchmarks (sections 2 to 5).

EVALUATION = JOBS["evaluate_model"]
TRAJECTORY = JOBS["trajectory_model"]


rule evaluate_model:
    """Evaluate a model on its benchmarks."""
    input:
        model=EVALUATION.reads("model"),
        benchmarks=EVALUATION.reads("benchmark."),
        layouts=EVALUATION.reads("exemplars.", "prompt.", "pal_prompt.", "profile."),
        removals=EVALUATION.reads("removals"),
    output:
        manifest="<store>/evaluate/{model}/{key}/manifest.json",
        data=directory("<store>/evaluate/{model}/{key}/data"),
    log:
        "<logs>/evaluate/{model}-{key}.log",
    conda:
        "../../environment.yml"
    threads: EVALUATION.cores
    resources:
        launcher="",
        mpi="",
    params:
        words=EVALUATION.words,
    shell:
        "{resources.launcher} python -m pipeline.start pipeline.evaluate --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule trajectory_model:
    """Evaluate what pre-training kept on its way (figure 3)."""
    input:
        model=TRAJECTORY.reads("model"),
        benchmarks=TRAJECTORY.reads("benchmark."),
        layouts=TRAJECTORY.reads("exemplars.", "prompt.", "pal_prompt.", "profile."),
        removals=TRAJECTORY.reads("removals"),
    output:
        manifest="<store>/trajectory/{model}/{tokens}/{key}/manifest.json",
        data=directory("<store>/trajectory/{model}/{tokens}/{key}/data"),
    log:
        "<logs>/trajectory/{model}/{tokens}-{key}.log",
    conda:
        "../../environment.yml"
    threads: TRAJECTORY.cores
    resources:
        launcher="",
        mpi="",
    params:
        words=TRAJECTORY.words,
    shell:
        "{resources.launcher} python -m pipeline.start pipeline.evaluate.trajectory --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"
