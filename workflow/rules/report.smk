# One offline page and summary.json from all manifests.

from glob import glob


rule report:
    input:
        needs("report"),
        GRAPH.config.sections["report"].claims,
        GRAPH.config.sections["report"].paper,
        sorted(glob("pipeline/report/templates/*")),
    output:
        page=report("<results>/report/index.html", caption="../report/report.rst", category="Report"),
        summary=report("<results>/report/summary.json", caption="../report/summary.rst", category="Report"),
        manifest="<results>/report/manifest.json",
    log:
        "<logs>/report.log",
    conda:
        "../../environment.yml"
    params:
        arguments=arguments("report"),
        launch=launch,
        folder=lambda wildcards, output: output.page.rsplit("/", 1)[0],
    shell:
        "python -m pipeline.report {params.arguments} --launch {params.launch}"
        " --output {params.folder} --manifest {output.manifest} 2>&1 | tee {log}"
