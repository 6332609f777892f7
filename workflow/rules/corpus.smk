# The classifier loop (section 2.1): one iteration trains on the seed, scores the pool, selects pages, finds new hosts.
# Large pools are selected in parts (`corpus.select_jobs`): from `learn` to `hosts`.

LEARN = job("corpus/iteration-{iteration}/learn-{part}")
LISTED = job("corpus/iteration-{iteration}/listed-{part}")
WANTED = job("corpus/iteration-{iteration}/wanted")
READ = job("corpus/iteration-{iteration}/read-{part}")
CLASSIFIER = job("corpus/iteration-{iteration}/train")
SCORE = job("corpus/iteration-{iteration}/score-{shard}")
RANK = job("corpus/iteration-{iteration}/rank-{part}")
CUT = job("corpus/iteration-{iteration}/cut")
ORDER = job("corpus/iteration-{iteration}/order-{part}")
KEEP = job("corpus/iteration-{iteration}/keep-{part}")
HOSTS = job("corpus/iteration-{iteration}/hosts-{part}")
SELECT = job("corpus/iteration-{iteration}/select")
FORMULAS = job("corpus/formulas")


rule corpus_learn:
    """Find pages of newly reviewed prefixes in a part of the pool."""
    input:
        lists=LEARN.reads("seed_texts", "background_texts", "seed_urls", "background_urls", "annotations", "opt_out", "blocklists"),
        previous=LEARN.reads("previous", "new_round", "previous_score"),
        kept=LEARN.reads("kept"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/learn-{part}/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/learn-{part}/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/learn-{part}-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=LEARN.words,
    shell:
        "python -m pipeline.start pipeline.corpus.learn --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule corpus_listed:
    """Replace listed URLs by the surviving copies of their pages."""
    input:
        lists=LISTED.reads("seed_texts", "background_texts", "seed_urls", "background_urls", "annotations", "opt_out", "blocklists"),
        unseen=LISTED.reads("out_of_distribution."),
        previous=LISTED.reads("previous", "new_round", "previous_score"),
        duplicates=LISTED.reads("duplicates"),
        learn=LISTED.reads("learn"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/listed-{part}/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/listed-{part}/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/listed-{part}-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=LISTED.words,
    shell:
        "python -m pipeline.start pipeline.corpus.listed --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule corpus_wanted:
    """List the pages of the pool that training and test sets need."""
    input:
        pool=WANTED.reads("pool"),
        lists=WANTED.reads("seed_texts", "background_texts", "seed_urls", "background_urls", "annotations", "opt_out", "blocklists"),
        unseen=WANTED.reads("out_of_distribution."),
        previous=WANTED.reads("previous", "new_round", "previous_score"),
        second_stage=WANTED.reads("embeddings", "grades"),
        learn=WANTED.reads("learn"),
        listed=WANTED.reads("listed"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/wanted/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/wanted/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/wanted-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=WANTED.words,
    shell:
        "python -m pipeline.start pipeline.corpus.wanted --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule corpus_read:
    """Read the wanted pages of a part of the pool."""
    input:
        wanted=READ.reads("wanted"),
        previous=READ.reads("previous", "new_round", "previous_score"),
        pool=READ.reads("shard"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/read-{part}/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/read-{part}/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/read-{part}-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=READ.words,
    shell:
        "python -m pipeline.start pipeline.corpus.read --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule corpus_train:
    """Train the iteration's classifier and measure it."""
    input:
        pool=CLASSIFIER.reads("pool"),
        lists=CLASSIFIER.reads("seed_texts", "background_texts", "seed_urls", "background_urls", "annotations", "opt_out", "blocklists"),
        unseen=CLASSIFIER.reads("out_of_distribution."),
        previous=CLASSIFIER.reads("previous", "new_round", "previous_score"),
        second_stage=CLASSIFIER.reads("embeddings", "grades"),
        tokenizer=CLASSIFIER.reads("tokenizer"),
        parts=CLASSIFIER.reads("wanted", "examples", "learn"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/train/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/train/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/train-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=CLASSIFIER.words,
    shell:
        "python -m pipeline.start pipeline.corpus.train --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule corpus_score:
    """Score one shard of the pool."""
    input:
        train=SCORE.reads("train"),
        pool=SCORE.reads("shard"),
        previous=SCORE.reads("previous", "new_round", "previous_score"),
        second_stage=SCORE.reads("embeddings", "grades"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/score-{shard}/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/score-{shard}/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/score-{shard}-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=SCORE.words,
    shell:
        "python -m pipeline.start pipeline.corpus.score --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule corpus_rank:
    """Rank the pages of a part of the pool and count their scores."""
    input:
        train=RANK.reads("train"),
        lists=RANK.reads("seed_texts", "background_texts", "seed_urls", "background_urls", "annotations", "opt_out", "blocklists"),
        previous=RANK.reads("previous", "new_round", "previous_score"),
        score=RANK.reads("score"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/rank-{part}/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/rank-{part}/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/rank-{part}-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=RANK.words,
    shell:
        "python -m pipeline.start pipeline.corpus.rank --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule corpus_cut:
    """Find the score from which pages are kept."""
    input:
        train=CUT.reads("train"),
        previous=CUT.reads("previous", "new_round", "previous_score"),
        rank=CUT.reads("rank"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/cut/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/cut/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/cut-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=CUT.words,
    shell:
        "python -m pipeline.start pipeline.corpus.cut --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule corpus_order:
    """Number the kept pages of a part of the scores."""
    input:
        previous=ORDER.reads("previous", "new_round", "previous_score"),
        cut=ORDER.reads("cut"),
        rank=ORDER.reads("rank"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/order-{part}/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/order-{part}/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/order-{part}-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=ORDER.words,
    shell:
        "python -m pipeline.start pipeline.corpus.order --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule corpus_keep:
    """Write the kept pages of a part of the pool."""
    input:
        previous=KEEP.reads("previous", "new_round", "previous_score"),
        order=KEEP.reads("order"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/keep-{part}/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/keep-{part}/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/keep-{part}-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=KEEP.words,
    shell:
        "python -m pipeline.start pipeline.corpus.keep --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule corpus_hosts:
    """Measure which hosts and prefixes are mathematical, for a part of them."""
    input:
        previous=HOSTS.reads("previous", "new_round", "previous_score"),
        cut=HOSTS.reads("cut"),
        rank=HOSTS.reads("rank"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/hosts-{part}/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/hosts-{part}/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/hosts-{part}-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=HOSTS.words,
    shell:
        "python -m pipeline.start pipeline.corpus.hosts --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule corpus_select:
    """Select pages, find mathematical domains, extend the seed."""
    input:
        train=SELECT.reads("train"),
        pool=SELECT.reads("pool", "wanted"),
        score=SELECT.reads("score"),
        parts=SELECT.reads("rank", "cut", "keep", "hosts"),
        lists=SELECT.reads("seed_texts", "background_texts", "seed_urls", "background_urls", "annotations", "opt_out", "blocklists"),
        previous=SELECT.reads("previous", "new_round", "previous_score"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/select/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/select/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/select-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=SELECT.words,
    shell:
        "python -m pipeline.start pipeline.corpus.select --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"


rule corpus_formulas:
    """Select English pages with formulas, a simple rule to compare with."""
    input:
        pool=FORMULAS.reads("pool"),
    output:
        manifest="<store>/corpus/formulas/{key}/manifest.json",
        data=directory("<store>/corpus/formulas/{key}/data"),
    log:
        "<logs>/corpus/formulas-{key}.log",
    conda:
        "../../environment.yml"
    params:
        words=FORMULAS.words,
    shell:
        "python -m pipeline.start pipeline.corpus.formulas --result {output.manifest:q} {params.words} 2>&1 | tee {log:q}"
