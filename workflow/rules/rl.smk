# Reinforcement learning.

POLICY = JOBS["rl_model"]


use rule annotate_model as rl_model with:
    """Train a policy with GRPO, PPO, DPO, RFT or Online RFT (sections 4 and 5.2)."""
    input:
        parent=POLICY.reads("parent", "init"),
        prompts=POLICY.reads("prompts"),
        reward=POLICY.reads("reward_model", "reward"),
        method=POLICY.reads("method"),
        evaluation=POLICY.reads("evaluation"),
        rollouts=POLICY.reads("rollouts"),
    output:
        manifest="<store>/rl/{model}/{key}/manifest.json",
        data=directory("<store>/rl/{model}/{key}/data"),
    log:
        "<logs>/rl/{model}-{key}.log",
    threads: POLICY.cores
    params:
        words=POLICY.words,
