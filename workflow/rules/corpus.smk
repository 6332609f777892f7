# The classifier loop (section 2.1): one iteration trains on the seed, scores the pool, selects pages, finds new hosts.


rule corpus_train:
    """Train the iteration's classifier and measure it (section 2.1)."""
    input:
        pool=JOB.read("pool"),
        seed_texts=JOB.read("seed_texts"),
        background_texts=JOB.read("background_texts"),
        seed_urls=JOB.read("seed_urls"),
        background_urls=JOB.read("background_urls"),
        annotations=JOB.read("annotations"),
        opt_out=JOB.read("opt_out"),
        blocklists=JOB.read("blocklists"),
        previous=JOB.read("previous"),
        new_round=JOB.read("new_round"),
        previous_score=JOB.read("previous_score"),
        tokenizer=JOB.read("tokenizer"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/train/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/train/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/train-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.corpus.train {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"


rule corpus_score:
    """Score one shard of the pool."""
    input:
        train=JOB.read("train"),
        shard=JOB.read("shard"),
        previous=JOB.read("previous"),
        new_round=JOB.read("new_round"),
        previous_score=JOB.read("previous_score"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/score-{shard}/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/score-{shard}/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/score-{shard}-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.corpus.score {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"


rule corpus_select:
    """Select pages, find mathematical domains, extend the seed."""
    input:
        train=JOB.read("train"),
        pool=JOB.read("pool"),
        score=JOB.read("score"),
        previous=JOB.read("previous"),
        new_round=JOB.read("new_round"),
        seed_urls=JOB.read("seed_urls"),
        background_urls=JOB.read("background_urls"),
        annotations=JOB.read("annotations"),
        opt_out=JOB.read("opt_out"),
        blocklists=JOB.read("blocklists"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/select/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/select/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/select-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.corpus.select {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"


rule corpus_formulas:
    """Select English pages with formulas, a simple rule to compare with."""
    input:
        pool=JOB.read("pool"),
        opt_out=JOB.read("opt_out"),
        blocklists=JOB.read("blocklists"),
    output:
        manifest="<store>/corpus/formulas/{key}/manifest.json",
        data=directory("<store>/corpus/formulas/{key}/data"),
    log:
        "<logs>/corpus/formulas-{key}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        words=JOB.words,
    shell:
        "python -m pipeline.core.start pipeline.corpus.formulas {params.words}"
        " --result {output.manifest:q} 2>&1 | tee {log:q}"
