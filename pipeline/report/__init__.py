"""The report: one self-contained HTML page and `summary.json`, made after the fact from manifests and the
files beside them.

Stages know nothing of it. `collect` reads what ran, `corpus` measures the loop against the truth, `compare`
and `claims` hold the run against the paper, `figures`, `tables` and `samples` shape what the page shows,
`page` renders it.
"""
