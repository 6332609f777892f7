# The demo's generated web, and word problems split for `make pretrained`.

MINIWEB = JOBS["miniweb_web"]
PROBLEMS = JOBS["problems_parts"]


rule miniweb_web:
    """Generate the demo's web, problems and benchmarks, with their truth."""
    output:
        manifest="<store>/miniweb/{key}/manifest.json",
        data=directory("<store>/miniweb/{key}/data"),
    log:
        "<logs>/miniweb-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=MINIWEB.words,
    shell:
        "python -m pipeline.start pipeline.miniweb --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule problems_parts:
    """Split word problems into examples, prompts and questions; keep benchmarks out."""
    input:
        source=PROBLEMS.reads("source"),
        benchmarks=PROBLEMS.reads("benchmark."),
    output:
        manifest="<store>/problems/{key}/manifest.json",
        data=directory("<store>/problems/{key}/data"),
    log:
        "<logs>/problems-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=PROBLEMS.words,
    shell:
        "python -m pipeline.start pipeline.problems --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"
