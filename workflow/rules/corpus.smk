# The classifier loop (section 2.1): one iteration trains on the seed, scores the pool, selects pages, finds new hosts.


use rule miniweb_web as corpus_train with:
    """Train the iteration's classifier and measure it."""
    output:
        manifest="<store>/corpus/iteration-{iteration}/train/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/train/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/train-{key}.log",


use rule miniweb_web as corpus_score with:
    """Score one shard of the pool."""
    output:
        manifest="<store>/corpus/iteration-{iteration}/score-{shard}/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/score-{shard}/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/score-{shard}-{key}.log",


use rule miniweb_web as corpus_select with:
    """Select pages, find mathematical domains, extend the seed."""
    output:
        manifest="<store>/corpus/iteration-{iteration}/select/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/select/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/select-{key}.log",


use rule miniweb_web as corpus_formulas with:
    """Select English pages with formulas, a simple rule to compare with."""
    output:
        manifest="<store>/corpus/formulas/{key}/manifest.json",
        data=directory("<store>/corpus/formulas/{key}/data"),
    log:
        "<logs>/corpus/formulas-{key}.log",
