# Benchmarks out of the corpus (section 2.1), and what became of each page. A `selection` is that of another iteration
# or rule than the run's last; its instances have its name in theirs.

from workflow.corpus import OPTED_OUT

CLEAN = JOBS["decontaminate_clean"]
CORPUS = JOBS["decontaminate_corpus"]
PAGES = JOBS["decontaminate_pages"]


use rule miniweb_web as decontaminate_clean with:
    """Clean the kept pages of a shard of the pool."""
    input:
        pool=CLEAN.reads("shard"),
        select=CLEAN.reads("select"),
        lists=CLEAN.reads(*OPTED_OUT),
        benchmarks=CLEAN.reads("benchmark."),
    output:
        manifest="<store>/decontaminate/{selection}clean-{shard}/{key}/manifest.json",
        data=directory("<store>/decontaminate/{selection}clean-{shard}/{key}/data"),
    log:
        "<logs>/decontaminate/{selection}clean-{shard}-{key}.log",
    params:
        words=CLEAN.words,


use rule miniweb_web as decontaminate_corpus with:
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
    params:
        words=CORPUS.words,


use rule miniweb_web as decontaminate_pages with:
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
    params:
        words=PAGES.words,
