# Models asked benchmarks on the way of their pre-training.


use rule cpt_model as trajectory_model with:
    """Evaluate what pre-training kept on its way (figure 3)."""
    output:
        manifest="<store>/trajectory/{model}/{tokens}/{key}/manifest.json",
        data=directory("<store>/trajectory/{model}/{tokens}/{key}/data"),
    log:
        "<logs>/trajectory/{model}/{tokens}-{key}.log",
