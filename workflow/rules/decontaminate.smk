# Benchmarks out of the corpus (section 2.1), and what became of each page. A `selection` is that of another iteration
# or rule than the run's last; its instances have its name in theirs.

CLEAN = JOBS["decontaminate_clean"]
CORPUS = JOBS["decontaminate_corpus"]
PAGES = JOBS["decontaminate_pages"]


rule decontaminate_clean:
    """Clean the kept pages of a shard of the pool."""
    input:
        pool=CLEAN.reads("shard"),
        select=CLEAN.reads("select"),
        benchmarks=CLEAN.reads("benchmark."),
    output:
        manifest="<store>/decontaminate/{selection}clean-{shard}/{key}/manifest.json",
        data=directory("<store>/decontaminate/{selection}clean-{shard}/{key}/data"),
    log:
        "<logs>/decontaminate/{selection}clean-{shard}-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=CLEAN.words,
    shell:
        "python -m pipeline.start pipeline.decontaminate.clean --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule decontaminate_corpus:
    """Put the clean shards together, with log and data card."""
    input:
        pool=CORPUS.reads("pool"),
        select=CORPUS.reads("select"),
        cleaned=CORPUS.reads("cleaned"),
    output:
        manifest="<store>/decontaminate/{selection}corpus/{key}/manifest.json",
        data=directory("<store>/decontaminate/{selection}corpus/{key}/data"),
    log:
        "<logs>/decontaminate/{selection}corpus-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=CORPUS.words,
    shell:
        "python -m pipeline.start pipeline.decontaminate --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule decontaminate_pages:
    """Write a row for each record of the crawl, or of a part of the pool: what became of it."""
    input:
        kept=PAGES.reads("kept", "excluded"),
        duplicates=PAGES.reads("duplicates"),
        extract=PAGES.reads("extract"),
        score=PAGES.reads("score"),
        removals=PAGES.reads("removals"),
        parts=PAGES.reads("part"),
    output:
        manifest="<store>/decontaminate/pages{which}/{key}/manifest.json",
        data=directory("<store>/decontaminate/pages{which}/{key}/data"),
    log:
        "<logs>/decontaminate/pages{which}-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=PAGES.words,
    shell:
        "python -m pipeline.start pipeline.decontaminate.pages --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"
