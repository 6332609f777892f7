# Models asked the questions of benchmarks (sections 2 to 5).


rule evaluate_model:
    """Evaluate a model on its benchmarks (sections 2 to 5)."""
    input:
        model=JOB.read("model"),
        benchmark=JOB.read("benchmark"),
        removals=JOB.read("removals"),
        exemplars=JOB.read("exemplars"),
        prompt=JOB.read("prompt"),
        pal_prompt=JOB.read("pal_prompt"),
    output:
        manifest="<store>/evaluate/{model}/{key}/manifest.json",
        data=directory("<store>/evaluate/{model}/{key}/data"),
    log:
        "<logs>/evaluate/{model}-{key}.log",
    conda:
        "../../environment.yml"
    threads: JOB.cores
    resources:
        launcher="",
        mpi="",
    params:
        words=JOB.words,
    shell:
        "{resources.launcher} python -m pipeline.core.start pipeline.evaluate {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"
