# Supervised fine-tuning. Its ranks run under one launcher; a profile gives them
# GPUs, and a `launcher` (srun) where they are on several nodes.

INSTRUCT = JOBS["sft_model"]


rule sft_model:
    """Fine-tune a model on solutions (section 3)."""
    input:
        parent=INSTRUCT.reads("parent", "init"),
        data=INSTRUCT.reads("data"),
    output:
        manifest="<store>/sft/{model}/{key}/manifest.json",
        data=directory("<store>/sft/{model}/{key}/data"),
    log:
        "<logs>/sft/{model}-{key}.log",
    conda:
        "../../environment.yml"
    threads: INSTRUCT.cores
    resources:
        launcher="",
        mpi="",
    params:
        words=INSTRUCT.words,
    shell:
        "{resources.launcher} python -m pipeline.start pipeline.sft --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"
