# Benchmarks out of the corpus (section 2.1), and what became of each page. A `selection` is that of another iteration
# or rule than the run's last; its instances have its name in theirs.


rule decontaminate_clean:
    """Clean the kept pages of a shard of the pool (section 2.1)."""
    input:
        shard=JOB.read("shard"),
        select=JOB.read("select"),
        opt_out=JOB.read("opt_out"),
        blocklists=JOB.read("blocklists"),
        benchmark=JOB.read("benchmark"),
    output:
        manifest="<store>/decontaminate/{selection}clean-{shard}/{key}/manifest.json",
        data=directory("<store>/decontaminate/{selection}clean-{shard}/{key}/data"),
    log:
        "<logs>/decontaminate/{selection}clean-{shard}-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.decontaminate.clean {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"


rule decontaminate_corpus:
    """Put the clean shards together, with log and data card."""
    input:
        pool=JOB.read("pool"),
        select=JOB.read("select"),
        cleaned=JOB.read("cleaned"),
    output:
        manifest="<store>/decontaminate/{selection}corpus/{key}/manifest.json",
        data=directory("<store>/decontaminate/{selection}corpus/{key}/data"),
    log:
        "<logs>/decontaminate/{selection}corpus-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.decontaminate {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"


rule decontaminate_pages:
    """Write a row for each record of the crawl, or of a part of the pool: what became of it."""
    input:
        kept=JOB.read("kept"),
        excluded=JOB.read("excluded"),
        duplicates=JOB.read("duplicates"),
        extract=JOB.read("extract"),
        score=JOB.read("score"),
        removals=JOB.read("removals"),
        part=JOB.read("part"),
    output:
        manifest="<store>/decontaminate/pages{which}/{key}/manifest.json",
        data=directory("<store>/decontaminate/pages{which}/{key}/data"),
    log:
        "<logs>/decontaminate/pages{which}-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.decontaminate.pages {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"
