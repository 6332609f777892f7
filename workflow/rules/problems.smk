# Word problems split for `make pretrained`.


rule problems_parts:
    """Split word problems into examples, prompts and questions; keep benchmarks out."""
    input:
        source=JOB.read("source"),
        benchmark=JOB.read("benchmark"),
    output:
        manifest="<store>/problems/{key}/manifest.json",
        data=directory("<store>/problems/{key}/data"),
    log:
        "<logs>/problems-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.examples.problems {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"
