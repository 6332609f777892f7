# How well models predict documents that none of them is trained on: bits per byte.

LIKELIHOOD = JOBS["likelihood_model"]


rule likelihood_model:
    """Measure how well a model predicts the documents."""
    input:
        model=LIKELIHOOD.reads("model"),
        documents=LIKELIHOOD.reads("documents"),
    output:
        manifest="<store>/likelihood/{model}/{key}/manifest.json",
        data=directory("<store>/likelihood/{model}/{key}/data"),
    log:
        "<logs>/likelihood/{model}-{key}.log",
    conda:
        "../../environment.yml"
    threads: LIKELIHOOD.cores
    params:
        words=LIKELIHOOD.words,
    shell:
        "python -m pipeline.start pipeline.likelihood --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"
