# Word problems split for `make pretrained`.

PROBLEMS = JOBS["problems_parts"]


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
