# Common Crawl or local WARC files -> text with lineage -> a pool without duplicates (paper section 2.1).


rule crawl_extract:
    input:
        needs("crawl/extract-{shard}"),
    output:
        data=directory("<results>/crawl/extract-{shard}/data"),
        manifest="<results>/crawl/extract-{shard}/manifest.json",
    log:
        "<logs>/crawl/extract-{shard}.log",
    conda:
        "../../environment.yml"
    params:
        arguments=arguments("crawl/extract-{shard}"),
        launch=launch,
    shell:
        "python -m pipeline.crawl.extract {params.arguments} --launch {params.launch}"
        " --output {output.data} --manifest {output.manifest} 2>&1 | tee {log}"


rule crawl_dedup:
    input:
        needs("crawl/dedup"),
    output:
        data=directory("<results>/crawl/dedup/data"),
        manifest="<results>/crawl/dedup/manifest.json",
    log:
        "<logs>/crawl/dedup.log",
    conda:
        "../../environment.yml"
    params:
        arguments=arguments("crawl/dedup"),
        launch=launch,
    shell:
        "python -m pipeline.crawl.dedup {params.arguments} --launch {params.launch}"
        " --output {output.data} --manifest {output.manifest} 2>&1 | tee {log}"


rule crawl:
    input:
        manifests("crawl"),
