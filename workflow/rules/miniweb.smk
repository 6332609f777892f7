# The demo's generated web. The rule of the first program is written out, those of other programs without ranks say what
# they have otherwise.


rule miniweb_web:
    """Generate the demo's web, problems and benchmarks, with their truth."""
    input:
        JOB.inputs,
    output:
        manifest="<store>/miniweb/{key}/manifest.json",
        data=directory("<store>/miniweb/{key}/data"),
    log:
        "<logs>/miniweb-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.start {params.words} --result {output.manifest:q} 2>&1 | tee {log:q}"
