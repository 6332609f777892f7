# Continued pre-training (paper section 2.3). Code is not an input: a comment must not retrain a model.


rule cpt_model:
    input:
        needs("cpt/{model}", code=False),
    output:
        data=directory("<results>/cpt/{model}/data"),
        manifest="<results>/cpt/{model}/manifest.json",
    log:
        "<logs>/cpt/{model}.log",
    conda:
        "../../environment.yml"
    threads: LAUNCH.threads
    resources:
        gpu=0,
        mpi="",
    params:
        arguments=arguments("cpt/{model}"),
        launch=launch,
    shell:
        "{resources.mpi} python -m pipeline.common.launch pipeline.cpt {params.arguments} --launch {params.launch}"
        " --output {output.data} --manifest {output.manifest} 2>&1 | tee {log}"


rule cpt:
    input:
        manifests("cpt"),
