# Benchmark items leave the corpus (paper section 2.1); then one table says what became of every page.


rule decontaminate_corpus:
    input:
        needs("decontaminate/corpus"),
    output:
        data=directory("<results>/decontaminate/corpus/data"),
        manifest="<results>/decontaminate/corpus/manifest.json",
    log:
        "<logs>/decontaminate/corpus.log",
    conda:
        "../../environment.yml"
    params:
        arguments=arguments("decontaminate/corpus"),
        launch=launch,
    shell:
        "python -m pipeline.decontaminate {params.arguments} --launch {params.launch}"
        " --output {output.data} --manifest {output.manifest} 2>&1 | tee {log}"


rule decontaminate_pages:
    input:
        needs("decontaminate/pages"),
    output:
        data=directory("<results>/decontaminate/pages/data"),
        pages="<results>/corpus/pages.parquet",
        manifest="<results>/decontaminate/pages/manifest.json",
    log:
        "<logs>/decontaminate/pages.log",
    conda:
        "../../environment.yml"
    params:
        arguments=arguments("decontaminate/pages"),
        launch=launch,
    shell:
        "python -m pipeline.decontaminate.pages {params.arguments} --launch {params.launch}"
        " --output {output.data} --manifest {output.manifest} 2>&1 | tee {log}"
        " && cp {output.data}/pages.parquet {output.pages}"


rule decontaminate:
    input:
        manifests("decontaminate"),
