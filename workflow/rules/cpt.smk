# Continued pre-training. Its ranks run under one launcher; a profile gives them
# GPUs, and a `launcher` (srun) where they are on several nodes.

BASE = JOBS["cpt_model"]


rule cpt_model:
    """Pre-train a model, from scratch or further (section 2.3)."""
    input:
        parent=BASE.reads("parent", "init"),
        tokens=BASE.reads("tokens"),
    output:
        manifest="<store>/cpt/{model}/{key}/manifest.json",
        data=directory("<store>/cpt/{model}/{key}/data"),
    log:
        "<logs>/cpt/{model}-{key}.log",
    conda:
        "../../environment.yml"
    threads: BASE.cores
    resources:
        launcher="",
        mpi="",
    params:
        words=BASE.words,
    shell:
        "{resources.launcher} python -m pipeline.start pipeline.cpt --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"
