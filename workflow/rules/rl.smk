# Reinforcement learning. Its ranks run under one launcher; a profile gives them
# GPUs, and a `launcher` (srun) where they are on several nodes.

POLICY = JOBS["rl_model"]


rule rl_model:
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
    conda:
        "../../environment.yml"
    threads: POLICY.cores
    resources:
        launcher="",
        mpi="",
    params:
        words=POLICY.words,
    shell:
        "{resources.launcher} python -m pipeline.start pipeline.rl --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"
