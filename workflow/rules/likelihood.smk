# How well models predict documents that none of them is trained on: bits per byte.

LIKELIHOOD = JOBS["likelihood_model"]


use rule miniweb_web as likelihood_model with:
    """Measure how well a model predicts the documents."""
    input:
        model=LIKELIHOOD.reads("model"),
        documents=LIKELIHOOD.reads("documents"),
    output:
        manifest="<store>/likelihood/{model}/{key}/manifest.json",
        data=directory("<store>/likelihood/{model}/{key}/data"),
    log:
        "<logs>/likelihood/{model}-{key}.log",
    threads: LIKELIHOOD.cores
    params:
        words=LIKELIHOOD.words,
