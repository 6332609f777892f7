# Own tokenizer for models from scratch; memory-mapped token files and mixtures.


rule tokens_tokenizer:
    input:
        needs("tokens/tokenizer"),
    output:
        data=directory("<results>/tokens/tokenizer/data"),
        manifest="<results>/tokens/tokenizer/manifest.json",
    log:
        "<logs>/tokens/tokenizer.log",
    conda:
        "../../environment.yml"
    params:
        arguments=arguments("tokens/tokenizer"),
        launch=launch,
    shell:
        "python -m pipeline.tokens.tokenizer {params.arguments} --launch {params.launch}"
        " --output {output.data} --manifest {output.manifest} 2>&1 | tee {log}"


rule tokens_mixture:
    input:
        needs("tokens/{mixture}"),
    output:
        data=directory("<results>/tokens/{mixture}/data"),
        manifest="<results>/tokens/{mixture}/manifest.json",
    # A cluster job knows only its own rule, so an order of rules would not keep it from making the tokenizer.
    wildcard_constraints:
        mixture="(?!tokenizer/)[^/]+",
    log:
        "<logs>/tokens/{mixture}.log",
    conda:
        "../../environment.yml"
    threads: LAUNCH.threads
    params:
        arguments=arguments("tokens/{mixture}"),
        launch=launch,
    shell:
        "python -m pipeline.tokens {params.arguments} --launch {params.launch}"
        " --output {output.data} --manifest {output.manifest} 2>&1 | tee {log}"


rule tokens:
    input:
        manifests("tokens"),
