# The report of a run.

REPORT = JOBS["report_page"]


rule report_page:
    """Write the report: one page, and summary.json."""
    input:
        results=REPORT.ends,
        files=REPORT.reads("truth", "seed_urls", "background_urls", "claims", "paper"),
    output:
        manifest="<store>/report/{key}/manifest.json",
        data=report(
            directory("<store>/report/{key}/data"),
            caption="../report/report.rst",
            category="Report",
            htmlindex="index.html",
        ),
    log:
        "<logs>/report-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=REPORT.words,
    shell:
        "python -m pipeline.start pipeline.report --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"
