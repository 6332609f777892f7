# Continued pre-training.


rule cpt_model:
    """Pre-train a model, from scratch or further (section 2.3)."""
    input:
        parent=JOB.read("parent"),
        init=JOB.read("init"),
        tokens=JOB.read("tokens"),
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
        "{resources.launcher} python -m pipeline.core.start pipeline.cpt {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"
