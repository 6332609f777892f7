# GRPO and its relatives (paper sections 4 and 5.2). Code is not an input: a comment must not retrain a model.


rule rl_model:
    input:
        needs("rl/{model}", code=False),
    output:
        data=directory("<results>/rl/{model}/data"),
        manifest="<results>/rl/{model}/manifest.json",
    log:
        "<logs>/rl/{model}.log",
    conda:
        "../../environment.yml"
    threads: LAUNCH.threads
    resources:
        gpu=0,
        mpi="",
    params:
        arguments=arguments("rl/{model}"),
        launch=launch,
    shell:
        "{resources.mpi} python -m pipeline.common.launch pipeline.rl {params.arguments} --launch {params.launch}"
        " --output {output.data} --manifest {output.manifest} 2>&1 | tee {log}"


rule rl:
    input:
        manifests("rl"),
