# Step labels and reward models (paper section 4.2). Code is not an input: a comment must not retrain a model.


rule reward_model:
    input:
        needs("reward/{model}", code=False),
    output:
        data=directory("<results>/reward/{model}/data"),
        manifest="<results>/reward/{model}/manifest.json",
    log:
        "<logs>/reward/{model}.log",
    conda:
        "../../environment.yml"
    threads: LAUNCH.threads
    resources:
        gpu=0,
        mpi="",
    params:
        arguments=arguments("reward/{model}"),
        launch=launch,
    shell:
        "{resources.mpi} python -m pipeline.common.launch pipeline.reward {params.arguments} --launch {params.launch}"
        " --output {output.data} --manifest {output.manifest} 2>&1 | tee {log}"


rule reward:
    input:
        manifests("reward"),
