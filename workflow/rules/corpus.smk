# The iterative classifier loop (paper section 2.1, figure 2), unrolled: each iteration trains, scores all shards, selects.


rule corpus_train:
    input:
        needs("corpus/iteration-{iteration}/train"),
    output:
        data=directory("<results>/corpus/iteration-{iteration}/train/data"),
        manifest="<results>/corpus/iteration-{iteration}/train/manifest.json",
    log:
        "<logs>/corpus/iteration-{iteration}/train.log",
    conda:
        "../../environment.yml"
    params:
        arguments=arguments("corpus/iteration-{iteration}/train"),
        launch=launch,
    shell:
        "python -m pipeline.corpus.train {params.arguments} --launch {params.launch}"
        " --output {output.data} --manifest {output.manifest} 2>&1 | tee {log}"


rule corpus_score:
    input:
        needs("corpus/iteration-{iteration}/score-{shard}"),
    output:
        data=directory("<results>/corpus/iteration-{iteration}/score-{shard}/data"),
        manifest="<results>/corpus/iteration-{iteration}/score-{shard}/manifest.json",
    log:
        "<logs>/corpus/iteration-{iteration}/score-{shard}.log",
    conda:
        "../../environment.yml"
    params:
        arguments=arguments("corpus/iteration-{iteration}/score-{shard}"),
        launch=launch,
    shell:
        "python -m pipeline.corpus.score {params.arguments} --launch {params.launch}"
        " --output {output.data} --manifest {output.manifest} 2>&1 | tee {log}"


rule corpus_select:
    input:
        needs("corpus/iteration-{iteration}/select"),
    output:
        data=directory("<results>/corpus/iteration-{iteration}/select/data"),
        manifest="<results>/corpus/iteration-{iteration}/select/manifest.json",
    log:
        "<logs>/corpus/iteration-{iteration}/select.log",
    conda:
        "../../environment.yml"
    params:
        arguments=arguments("corpus/iteration-{iteration}/select"),
        launch=launch,
    shell:
        "python -m pipeline.corpus.select {params.arguments} --launch {params.launch}"
        " --output {output.data} --manifest {output.manifest} 2>&1 | tee {log}"


rule corpus:
    input:
        manifests("corpus"),
