# Continued pre-training.


use rule annotate_model as cpt_model with:
    """Pre-train a model, from scratch or further (section 2.3)."""
    output:
        manifest="<store>/cpt/{model}/{key}/manifest.json",
        data=directory("<store>/cpt/{model}/{key}/data"),
    log:
        "<logs>/cpt/{model}-{key}.log",
