# The report of a run.

REPORT = JOBS["report_page"]


use rule miniweb_web as report_page with:
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
    params:
        words=REPORT.words,
