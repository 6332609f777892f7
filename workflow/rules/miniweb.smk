# The demo's generated web: WARC files with known truth, problems, benchmarks.


rule miniweb:
    input:
        needs("miniweb"),
    output:
        data=directory("<results>/miniweb/data"),
        manifest="<results>/miniweb/manifest.json",
    log:
        "<logs>/miniweb.log",
    conda:
        "../../environment.yml"
    params:
        arguments=arguments("miniweb"),
        launch=launch,
    shell:
        "python -m pipeline.miniweb {params.arguments} --launch {params.launch}"
        " --output {output.data} --manifest {output.manifest} 2>&1 | tee {log}"
