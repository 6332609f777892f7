# From WARC files to the pool of deduplicated pages (section 2.1). With `crawl.order: math_first` each dump is
# deduplicated by itself first; its jobs have its name in theirs.

LOOKUP = JOBS["crawl_lookup"]
EXTRACT = JOBS["crawl_extract"]
SIGN = JOBS["crawl_sign"]
EXACT = JOBS["crawl_exact"]
BUCKETS = JOBS["crawl_buckets"]
CLUSTER = JOBS["crawl_cluster"]
FILTER = JOBS["crawl_filter"]
DEDUP = JOBS["crawl_dedup"]


use rule miniweb_web as crawl_lookup with:
    """Find the records of listed pages in an index of Common Crawl."""
    input:
        index=LOOKUP.reads("index"),
        pages=LOOKUP.reads("urls", "hosts", "prefixes"),
    output:
        manifest="<store>/crawl/lookup/{key}/manifest.json",
        data=directory("<store>/crawl/lookup/{key}/data"),
    log:
        "<logs>/crawl/lookup-{key}.log",
    resources:
        downloads=LOOKUP.downloads,
    params:
        words=LOOKUP.words,


use rule miniweb_web as crawl_extract with:
    """Extract the texts of the pages of some WARC files, or take those of some files of texts."""
    input:
        warc=EXTRACT.reads("warc"),
        texts=EXTRACT.reads("texts"),
        filters=EXTRACT.reads("filter"),
    output:
        manifest="<store>/crawl/extract-{shard}/{key}/manifest.json",
        data=directory("<store>/crawl/extract-{shard}/{key}/data"),
    log:
        "<logs>/crawl/extract-{shard}-{key}.log",
    resources:
        downloads=EXTRACT.downloads,
    params:
        words=EXTRACT.words,


use rule miniweb_web as crawl_sign with:
    """Hash the URLs and texts of a shard, and its MinHash signatures."""
    input:
        extract=SIGN.reads("extract"),
    output:
        manifest="<store>/crawl/sign-{shard}/{key}/manifest.json",
        data=directory("<store>/crawl/sign-{shard}/{key}/data"),
    log:
        "<logs>/crawl/sign-{shard}-{key}.log",
    params:
        words=SIGN.words,


use rule miniweb_web as crawl_exact with:
    """Find pages with the same URL, then with the same text, in all files or in those of a dump."""
    input:
        signed=EXACT.reads("sign"),
    output:
        manifest="<store>/crawl/exact{which}/{key}/manifest.json",
        data=directory("<store>/crawl/exact{which}/{key}/data"),
    log:
        "<logs>/crawl/exact{which}-{key}.log",
    params:
        words=EXACT.words,


use rule miniweb_web as crawl_buckets with:
    """Find near-duplicates in some MinHash bands."""
    input:
        exact=BUCKETS.reads("exact"),
    output:
        manifest="<store>/crawl/buckets-{part}/{key}/manifest.json",
        data=directory("<store>/crawl/buckets-{part}/{key}/data"),
    log:
        "<logs>/crawl/buckets-{part}-{key}.log",
    params:
        words=BUCKETS.words,


use rule miniweb_web as crawl_cluster with:
    """Join the pairs, and list the pages that go by shard."""
    input:
        exact=CLUSTER.reads("exact"),
        buckets=CLUSTER.reads("buckets"),
    output:
        manifest="<store>/crawl/cluster{which}/{key}/manifest.json",
        data=directory("<store>/crawl/cluster{which}/{key}/data"),
    log:
        "<logs>/crawl/cluster{which}-{key}.log",
    params:
        words=CLUSTER.words,


use rule miniweb_web as crawl_filter with:
    """Write a shard of pages without duplicates."""
    input:
        extract=FILTER.reads("extract"),
        removed=FILTER.reads("removed"),
    output:
        manifest="<store>/crawl/filter-{part}/{key}/manifest.json",
        data=directory("<store>/crawl/filter-{part}/{key}/data"),
    log:
        "<logs>/crawl/filter-{part}-{key}.log",
    params:
        words=FILTER.words,


use rule miniweb_web as crawl_dedup with:
    """Put the shards of the pool together, and tell what survives of pages removed within a dump."""
    input:
        filter=DEDUP.reads("filter"),
        dumps=DEDUP.reads("dump."),
    output:
        manifest="<store>/crawl/dedup/{key}/manifest.json",
        data=directory("<store>/crawl/dedup/{key}/data"),
    log:
        "<logs>/crawl/dedup-{key}.log",
    params:
        words=DEDUP.words,
