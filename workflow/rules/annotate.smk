# Pages of the pool graded by a language model, which the second stage of the classifier may learn.

ANNOTATION = JOBS["annotate_model"]


rule annotate_model:
    """Ask a model how useful each page of a sample is for teaching mathematics."""
    input:
        pool=ANNOTATION.reads("pool"),
        model=ANNOTATION.reads("model", "prompt"),
    output:
        manifest="<store>/annotate/{key}/manifest.json",
        data=directory("<store>/annotate/{key}/data"),
    log:
        "<logs>/annotate-{key}.log",
    conda:
        "../../environment.yml"
    threads: ANNOTATION.cores
    resources:
        launcher="",
        mpi="",
    params:
        words=ANNOTATION.words,
    shell:
        "{resources.launcher} python -m pipeline.start pipeline.annotate --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"
