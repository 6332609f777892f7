# Models asked the questions of benchmarks (sections 2 to 5).

EVALUATION = JOBS["evaluate_model"]
TRAJECTORY = JOBS["trajectory_model"]


use rule annotate_model as evaluate_model with:
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
    threads: EVALUATION.cores
    params:
        words=EVALUATION.words,


use rule annotate_model as trajectory_model with:
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
    threads: TRAJECTORY.cores
    params:
        words=TRAJECTORY.words,
