# Word problems split for `make pretrained`.


use rule miniweb_web as problems_parts with:
    """Split word problems into examples, prompts and questions; keep benchmarks out."""
    output:
        manifest="<store>/problems/{key}/manifest.json",
        data=directory("<store>/problems/{key}/data"),
    log:
        "<logs>/problems-{key}.log",
