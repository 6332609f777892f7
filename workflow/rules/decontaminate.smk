# Benchmarks out of the corpus (section 2.1), and what became of each page. A `selection` is that of another iteration
# or rule than the run's last; its instances have its name in theirs.


use rule miniweb_web as decontaminate_clean with:
    """Clean the kept pages of a shard of the pool."""
    output:
        manifest="<store>/decontaminate/{selection}clean-{shard}/{key}/manifest.json",
        data=directory("<store>/decontaminate/{selection}clean-{shard}/{key}/data"),
    log:
        "<logs>/decontaminate/{selection}clean-{shard}-{key}.log",


use rule miniweb_web as decontaminate_corpus with:
    """Put the clean shards together, with log and data card."""
    output:
        manifest="<store>/decontaminate/{selection}corpus/{key}/manifest.json",
        data=directory("<store>/decontaminate/{selection}corpus/{key}/data"),
    log:
        "<logs>/decontaminate/{selection}corpus-{key}.log",


use rule miniweb_web as decontaminate_pages with:
    """Write a row for each record of the crawl, or of a part of the pool: what became of it."""
    output:
        manifest="<store>/decontaminate/pages{which}/{key}/manifest.json",
        data=directory("<store>/decontaminate/pages{which}/{key}/data"),
    log:
        "<logs>/decontaminate/pages{which}-{key}.log",
