"""The report: one self-contained HTML page and `summary.json`, made from manifests and the files beside them.

No stage knows of it. `collect` reads what ran; `compare`, `methods` and `truth` compute; `judgements` judges
the paper's `claims`; `material` holds all of that and writes `summary.json`. Each chapter is a module in
`chapters` and a template in `templates`, made of `tables` and `figures`; `page` renders them.
"""
