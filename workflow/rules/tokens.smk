# Texts as memory-mapped tokens, and mixtures of them (section 2.3).

TOKENIZER = JOBS["tokens_tokenizer"]
MIXTURE = JOBS["tokens_mixture"]


use rule miniweb_web as tokens_tokenizer with:
    """Train the run's own tokenizer."""
    input:
        texts=TOKENIZER.reads("text"),
        corpus=TOKENIZER.reads("corpus"),
    output:
        manifest="<store>/tokens/tokenizer/{key}/manifest.json",
        data=directory("<store>/tokens/tokenizer/{key}/data"),
    log:
        "<logs>/tokens/tokenizer-{key}.log",
    params:
        words=TOKENIZER.words,


use rule miniweb_web as tokens_mixture with:
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
    threads: MIXTURE.cores
    params:
        words=MIXTURE.words,
