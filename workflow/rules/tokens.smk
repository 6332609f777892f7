# Texts as memory-mapped tokens, and mixtures of them (section 2.3).


rule tokens_tokenizer:
    """Train the run's own tokenizer."""
    input:
        corpus=JOB.read("corpus"),
        text=JOB.read("text"),
    output:
        manifest="<store>/tokens/tokenizer/{key}/manifest.json",
        data=directory("<store>/tokens/tokenizer/{key}/data"),
    log:
        "<logs>/tokens/tokenizer-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.tokens.tokenizer {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"


rule tokens_mixture:
    """Tokenise the sources of a mixture (section 2.3)."""
    input:
        tokenizer=JOB.read("tokenizer"),
        source=JOB.read("source"),
        benchmark=JOB.read("benchmark"),
    output:
        manifest="<store>/tokens/{mixture}/{key}/manifest.json",
        data=directory("<store>/tokens/{mixture}/{key}/data"),
    log:
        "<logs>/tokens/{mixture}-{key}.log",
    conda:
        "../../environment.yml"
    threads: JOB.cores
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.tokens {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"
