# Models asked benchmarks on the way of their pre-training.


rule trajectory_model:
    """Evaluate what pre-training kept on its way (figure 3)."""
    input:
        model=JOB.read("model"),
        benchmark=JOB.read("benchmark"),
        removals=JOB.read("removals"),
        exemplars=JOB.read("exemplars"),
        prompt=JOB.read("prompt"),
        pal_prompt=JOB.read("pal_prompt"),
    output:
        manifest="<store>/trajectory/{model}/{tokens}/{key}/manifest.json",
        data=directory("<store>/trajectory/{model}/{tokens}/{key}/data"),
    log:
        "<logs>/trajectory/{model}/{tokens}-{key}.log",
    conda:
        "../../environment.yml"
    threads: JOB.cores
    resources:
        launcher="",
        mpi="",
    params:
        words=JOB.words,
    shell:
        "{resources.launcher} python -m pipeline.core.start pipeline.evaluate.trajectory {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"
