# Supervised fine-tuning (paper section 3). Code is not an input: a comment must not retrain a model.


rule sft_model:
    input:
        needs("sft/{model}", code=False),
    output:
        data=directory("<results>/sft/{model}/data"),
        manifest="<results>/sft/{model}/manifest.json",
    log:
        "<logs>/sft/{model}.log",
    conda:
        "../../environment.yml"
    threads: LAUNCH.threads
    resources:
        gpu=0,
        mpi="",
    params:
        arguments=arguments("sft/{model}"),
        launch=launch,
    shell:
        "{resources.mpi} python -m pipeline.common.launch pipeline.sft {params.arguments} --launch {params.launch}"
        " --output {output.data} --manifest {output.manifest} 2>&1 | tee {log}"


rule sft:
    input:
        manifests("sft"),
