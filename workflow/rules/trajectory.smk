# Models asked benchmarks on the way of their pre-training.

TRAJECTORY = JOBS["trajectory_model"]


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
