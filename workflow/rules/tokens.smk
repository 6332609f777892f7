# Texts as memory-mapped tokens, and mixtures of them (section 2.3).


use rule miniweb_web as tokens_tokenizer with:
    """Train the run's own tokenizer."""
    output:
        manifest="<store>/tokens/tokenizer/{key}/manifest.json",
        data=directory("<store>/tokens/tokenizer/{key}/data"),
    log:
        "<logs>/tokens/tokenizer-{key}.log",


use rule miniweb_web as tokens_mixture with:
    """Tokenise the sources of a mixture."""
    output:
        manifest="<store>/tokens/{mixture}/{key}/manifest.json",
        data=directory("<store>/tokens/{mixture}/{key}/data"),
    log:
        "<logs>/tokens/{mixture}-{key}.log",
    threads: JOB.cores
