# Reward models.


use rule cpt_model as reward_model with:
    """Label solutions and train an outcome or process reward model (section 4.1)."""
    output:
        manifest="<store>/reward/{model}/{key}/manifest.json",
        data=directory("<store>/reward/{model}/{key}/data"),
    log:
        "<logs>/reward/{model}-{key}.log",
