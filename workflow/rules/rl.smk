# Reinforcement learning.


use rule cpt_model as rl_model with:
    """Train a policy with GRPO, PPO, DPO, RFT or Online RFT (sections 4 and 5.2)."""
    output:
        manifest="<store>/rl/{model}/{key}/manifest.json",
        data=directory("<store>/rl/{model}/{key}/data"),
    log:
        "<logs>/rl/{model}-{key}.log",
