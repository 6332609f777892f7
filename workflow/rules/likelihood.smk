# How well models predict documents that none of them is trained on: bits per byte.


use rule miniweb_web as likelihood_model with:
    """Measure how well a model predicts the documents."""
    output:
        manifest="<store>/likelihood/{model}/{key}/manifest.json",
        data=directory("<store>/likelihood/{model}/{key}/data"),
    log:
        "<logs>/likelihood/{model}-{key}.log",
    threads: JOB.cores
