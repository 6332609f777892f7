# Models asked the questions of benchmarks (sections 2 to 5).


use rule cpt_model as evaluate_model with:
    """Evaluate a model on its benchmarks."""
    output:
        manifest="<store>/evaluate/{model}/{key}/manifest.json",
        data=directory("<store>/evaluate/{model}/{key}/data"),
    log:
        "<logs>/evaluate/{model}-{key}.log",
