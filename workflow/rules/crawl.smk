# From WARC files to the pool of deduplicated pages (section 2.1). With `crawl.order: math_first` each dump is
# deduplicated by itself first; its jobs have its name in theirs.


rule crawl_extract:
    """Extract the texts of the pages of some WARC files, or take those of some files of texts (section 2.1)."""
    input:
        warc=JOB.read("warc"),
        texts=JOB.read("texts"),
        filter=JOB.read("filter"),
    output:
        manifest="<store>/crawl/extract-{shard}/{key}/manifest.json",
        data=directory("<store>/crawl/extract-{shard}/{key}/data"),
    log:
        "<logs>/crawl/extract-{shard}-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        downloads=JOB.downloads,
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.crawl.extract {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"


rule crawl_sign:
    """Hash the URLs and texts of a shard, and its MinHash signatures."""
    input:
        extract=JOB.read("extract"),
    output:
        manifest="<store>/crawl/sign-{shard}/{key}/manifest.json",
        data=directory("<store>/crawl/sign-{shard}/{key}/data"),
    log:
        "<logs>/crawl/sign-{shard}-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.crawl.sign {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"


rule crawl_exact:
    """Find pages with the same URL, then with the same text, in all files or in those of a dump."""
    input:
        sign=JOB.read("sign"),
    output:
        manifest="<store>/crawl/exact{which}/{key}/manifest.json",
        data=directory("<store>/crawl/exact{which}/{key}/data"),
    log:
        "<logs>/crawl/exact{which}-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.crawl.exact {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"


rule crawl_buckets:
    """Find near-duplicates in some MinHash bands."""
    input:
        exact=JOB.read("exact"),
    output:
        manifest="<store>/crawl/buckets-{part}/{key}/manifest.json",
        data=directory("<store>/crawl/buckets-{part}/{key}/data"),
    log:
        "<logs>/crawl/buckets-{part}-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.crawl.buckets {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"


rule crawl_survivors:
    """Decide which pages stay, and list those that go by shard."""
    input:
        exact=JOB.read("exact"),
        buckets=JOB.read("buckets"),
    output:
        manifest="<store>/crawl/survivors{which}/{key}/manifest.json",
        data=directory("<store>/crawl/survivors{which}/{key}/data"),
    log:
        "<logs>/crawl/survivors{which}-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.crawl.survivors {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"


rule crawl_filter:
    """Write a shard of pages without duplicates."""
    input:
        extract=JOB.read("extract"),
        removed=JOB.read("removed"),
    output:
        manifest="<store>/crawl/filter-{part}/{key}/manifest.json",
        data=directory("<store>/crawl/filter-{part}/{key}/data"),
    log:
        "<logs>/crawl/filter-{part}-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.crawl.filter {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"


rule crawl_dedup:
    """Put the shards of the pool together, and tell what survives of pages removed within a dump."""
    input:
        filter=JOB.read("filter"),
        dump=JOB.read("dump"),
    output:
        manifest="<store>/crawl/dedup/{key}/manifest.json",
        data=directory("<store>/crawl/dedup/{key}/data"),
    log:
        "<logs>/crawl/dedup-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.crawl.dedup {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"
