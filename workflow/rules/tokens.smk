# Texts as memory-mapped tokens, and mixtures of them (section 2.3).

TOKENIZER = JOBS["tokens_tokenizer"]
MIXTURE = JOBS["tokens_mixture"]


rule tokens_tokenizer:
    """Train the run's own tokenizer."""
    input:
        texts=TOKENIZER.reads("text"),
        corpus=TOKENIZER.reads("corpus"),
    output:
        manifest="<store>/tokens/tokenizer/{key}/manifest.json",
        data=directory("<store>/tokens/tokenizer/{key}/data"),
    log:
        "<logs>/tokens/tokenizer-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=TOKENIZER.words,
    shell:
        "python -m pipeline.start pipeline.tokens.tokenizer --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule tokens_mixture:
    """Tokenise the sources of a mixture."""
    input:
        tokenizer=MIXTURE.reads("tokenizer"),
        sources=MIXTURE.reads("source."),
        benchmarks=MIXTURE.reads("benchmark."),
    output:
        manifest="<store>/tokens/{mixture}/{key}/manifest.json",
        data=directory("<store>/tokens/{mixture}/{key}/data"),
    log:
        "<logs>/tokens/{mixture}-{key}.log",
    conda:
        "../../environment.yml"
    threads: MIXTURE.cores
    params:
        words=MIXTURE.words,
    shell:
        "python -m pipeline.start pipeline.tokens --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"
