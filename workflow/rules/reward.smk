# Reward models.

REWARD = JOBS["reward_model"]


use rule annotate_model as reward_model with:
    """Label solutions and train an outcome or process reward model (section 4.1)."""
    input:
        parent=REWARD.reads("parent", "init"),
        prompts=REWARD.reads("prompts"),
        models=REWARD.reads("policy", "completer"),
        history=REWARD.reads("history"),
    output:
        manifest="<store>/reward/{model}/{key}/manifest.json",
        data=directory("<store>/reward/{model}/{key}/data"),
    log:
        "<logs>/reward/{model}-{key}.log",
    threads: REWARD.cores
    params:
        words=REWARD.words,
