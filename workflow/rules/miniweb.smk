# The demo's generated web.


rule miniweb_web:
    """Generate the demo's web, problems and benchmarks, with their truth."""
    output:
        manifest="<store>/miniweb/{key}/manifest.json",
        data=directory("<store>/miniweb/{key}/data"),
    log:
        "<logs>/miniweb-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.examples.miniweb {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"
