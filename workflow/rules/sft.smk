# Supervised fine-tuning.


rule sft_model:
    """Fine-tune a model on solutions (section 3)."""
    input:
        parent=JOB.read("parent"),
        init=JOB.read("init"),
        data=JOB.read("data"),
    output:
        manifest="<store>/sft/{model}/{key}/manifest.json",
        data=directory("<store>/sft/{model}/{key}/data"),
    log:
        "<logs>/sft/{model}-{key}.log",
    conda:
        "../../environment.yml"
    threads: JOB.cores
    resources:
        launcher="",
        mpi="",
    params:
        words=JOB.words,
    shell:
        "{resources.launcher} python -m pipeline.core.start pipeline.sft {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"
