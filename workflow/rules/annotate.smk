# Pages of the pool graded by a language model, which the second stage of the classifier may learn. The rule of the
# first program with ranks is written out, those of the others say what they have otherwise: ranks run under one
# launcher; a profile gives them GPUs, and a `launcher` (srun) where they are on several nodes.


rule annotate_model:
    """Ask a model how useful each page of a sample is for teaching mathematics."""
    input:
        JOB.inputs,
    output:
        manifest="<store>/annotate/{key}/manifest.json",
        data=directory("<store>/annotate/{key}/data"),
    log:
        "<logs>/annotate-{key}.log",
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
