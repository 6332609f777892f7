# Reward models.


rule reward_model:
    """Label solutions and train an outcome or process reward model (section 4.1)."""
    input:
        parent=JOB.read("parent"),
        init=JOB.read("init"),
        policy=JOB.read("policy"),
        prompts=JOB.read("prompts"),
        history=JOB.read("history"),
    output:
        manifest="<store>/reward/{model}/{key}/manifest.json",
        data=directory("<store>/reward/{model}/{key}/data"),
    log:
        "<logs>/reward/{model}-{key}.log",
    conda:
        "../../environment.yml"
    threads: JOB.cores
    resources:
        launcher="",
        mpi="",
    params:
        words=JOB.words,
    shell:
        "{resources.launcher} python -m pipeline.core.start pipeline.reward {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"
