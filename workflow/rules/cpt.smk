# Continued pre-training.

BASE = JOBS["cpt_model"]


use rule annotate_model as cpt_model with:
    """Pre-train a model, from scratch or further (section 2.3)."""
    input:
        parent=BASE.reads("parent", "init"),
        tokens=BASE.reads("tokens"),
    output:
        manifest="<store>/cpt/{model}/{key}/manifest.json",
        data=directory("<store>/cpt/{model}/{key}/data"),
    log:
        "<logs>/cpt/{model}-{key}.log",
    threads: BASE.cores
    params:
        words=BASE.words,
