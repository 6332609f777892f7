# The report of a run.


use rule miniweb_web as report_page with:
    """Write the report: one page, and summary.json."""
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
