# Reinforcement learning.


rule rl_model:
    """Train a policy with GRPO, PPO, DPO, RFT or Online RFT (sections 4 and 5.2)."""
    input:
        parent=JOB.read("parent"),
        init=JOB.read("init"),
        reward_model=JOB.read("reward_model"),
        prompts=JOB.read("prompts"),
        evaluation=JOB.read("evaluation"),
        rollouts=JOB.read("rollouts"),
        reward=JOB.read("reward"),
        method=JOB.read("method"),
    output:
        manifest="<store>/rl/{model}/{key}/manifest.json",
        data=directory("<store>/rl/{model}/{key}/data"),
    log:
        "<logs>/rl/{model}-{key}.log",
    conda:
        "../../environment.yml"
    threads: JOB.cores
    resources:
        launcher="",
        mpi="",
    params:
        words=JOB.words,
    shell:
        "{resources.launcher} python -m pipeline.core.start pipeline.rl {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"
