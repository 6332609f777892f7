# The report of a run.


rule report_page:
    """Write the report: one page, and summary.json."""
    input:
        results=JOB.read(*NAMES),
        truth=JOB.read("truth"),
        seed_urls=JOB.read("seed_urls"),
        background_urls=JOB.read("background_urls"),
        claims=JOB.read("claims"),
        paper=JOB.read("paper"),
    output:
        manifest="<store>/report/{key}/manifest.json",
        data=directory("<store>/report/{key}/data"),
        page=report("<store>/report/{key}/report.html", caption="../report/report.rst", category="Report"),
    log:
        "<logs>/report-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.report {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"
        " && cp {output.data:q}/index.html {output.page:q}"
