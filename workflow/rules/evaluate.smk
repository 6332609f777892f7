# Models asked the questions of benchmarks (sections 2 to 5).

EVALUATION = JOBS["evaluate_model"]


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
