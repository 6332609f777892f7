# From WARC files to the pool of deduplicated pages (section 2.1). With `crawl.order: math_first` each dump is
# deduplicated by itself first; its jobs have its name in theirs.


use rule miniweb_web as crawl_extract with:
    """Extract the texts of the pages of some WARC files, or take those of some files of texts."""
    output:
        manifest="<store>/crawl/extract-{shard}/{key}/manifest.json",
        data=directory("<store>/crawl/extract-{shard}/{key}/data"),
    log:
        "<logs>/crawl/extract-{shard}-{key}.log",
    resources:
        downloads=JOB.downloads,


use rule miniweb_web as crawl_sign with:
    """Hash the URLs and texts of a shard, and its MinHash signatures."""
    output:
        manifest="<store>/crawl/sign-{shard}/{key}/manifest.json",
        data=directory("<store>/crawl/sign-{shard}/{key}/data"),
    log:
        "<logs>/crawl/sign-{shard}-{key}.log",


use rule miniweb_web as crawl_exact with:
    """Find pages with the same URL, then with the same text, in all files or in those of a dump."""
    output:
        manifest="<store>/crawl/exact{which}/{key}/manifest.json",
        data=directory("<store>/crawl/exact{which}/{key}/data"),
    log:
        "<logs>/crawl/exact{which}-{key}.log",


use rule miniweb_web as crawl_buckets with:
    """Find near-duplicates in some MinHash bands."""
    output:
        manifest="<store>/crawl/buckets-{part}/{key}/manifest.json",
        data=directory("<store>/crawl/buckets-{part}/{key}/data"),
    log:
        "<logs>/crawl/buckets-{part}-{key}.log",


use rule miniweb_web as crawl_cluster with:
    """Join the pairs, and list the pages that go by shard."""
    output:
        manifest="<store>/crawl/cluster{which}/{key}/manifest.json",
        data=directory("<store>/crawl/cluster{which}/{key}/data"),
    log:
        "<logs>/crawl/cluster{which}-{key}.log",


use rule miniweb_web as crawl_filter with:
    """Write a shard of pages without duplicates."""
    output:
        manifest="<store>/crawl/filter-{part}/{key}/manifest.json",
        data=directory("<store>/crawl/filter-{part}/{key}/data"),
    log:
        "<logs>/crawl/filter-{part}-{key}.log",


use rule miniweb_web as crawl_dedup with:
    """Put the shards of the pool together, and tell what survives of pages removed within a dump."""
    output:
        manifest="<store>/crawl/dedup/{key}/manifest.json",
        data=directory("<store>/crawl/dedup/{key}/data"),
    log:
        "<logs>/crawl/dedup-{key}.log",
