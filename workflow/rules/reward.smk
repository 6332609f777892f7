# Reward models. Its ranks run under one launcher; a profile gives them
# GPUs, and a `launcher` (srun) where they are on several nodes.

REWARD = JOBS["reward_model"]


rule reward_model:
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
    conda:
        "../../environment.yml"
    threads: REWARD.cores
    resources:
        launcher="",
        mpi="",
    params:
        words=REWARD.words,
    shell:
        "{resources.launcher} python -m pipeline.start pipeline.reward --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"
