# Continued pre-training. The rule of the first program with ranks is written out, those of the others say what they
# have otherwise: ranks run under one launcher; a profile gives them GPUs, and a `launcher` (srun) where they are on
# several nodes.


rule cpt_model:
    """Pre-train a model, from scratch or further (section 2.3)."""
    input:
        JOB.inputs,
    output:
        manifest="<store>/cpt/{model}/{key}/manifest.json",
        data=directory("<store>/cpt/{model}/{key}/data"),
    log:
        "<logs>/cpt/{model}-{key}.log",
    conda:
        "../../environment.yml"
    threads: JOB.cores
    resources:
        launcher="",
        mpi="",
    params:
        words=JOB.words,
    shell:
        "{resources.launcher} python -m pipeline.start {params.words} --result {output.manifest:q} 2>&1 | tee {log:q}"
