# Any model on its benchmarks: samples, verdicts, scores (paper sections 2.3, 3, 4).


rule evaluate_model:
    input:
        needs("evaluate/{model}"),
    output:
        data=directory("<results>/evaluate/{model}/data"),
        manifest="<results>/evaluate/{model}/manifest.json",
    log:
        "<logs>/evaluate/{model}.log",
    conda:
        "../../environment.yml"
    threads: LAUNCH.threads
    resources:
        gpu=0,
    params:
        arguments=arguments("evaluate/{model}"),
        launch=launch,
    shell:
        "python -m pipeline.evaluate {params.arguments} --launch {params.launch}"
        " --output {output.data} --manifest {output.manifest} 2>&1 | tee {log}"


rule evaluate:
    input:
        manifests("evaluate"),
