# The demo's generated web, and word problems split for `make pretrained`. The rule of the first program is written
# out, those of other programs without ranks say what they have otherwise.

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
        "python -m pipeline.start {params.words} --result {output.manifest:q} 2>&1 | tee {log:q}"


use rule miniweb_web as problems_parts with:
    """Split word problems into examples, prompts and questions; keep benchmarks out."""
    input:
        source=PROBLEMS.reads("source"),
        benchmarks=PROBLEMS.reads("benchmark."),
    output:
        manifest="<store>/problems/{key}/manifest.json",
        data=directory("<store>/problems/{key}/data"),
    log:
        "<logs>/problems-{key}.log",
    params:
        words=PROBLEMS.words,
