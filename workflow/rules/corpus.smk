# The classifier loop (section 2.1): one iteration trains on the seed, scores the pool, selects pages, finds new hosts.

from workflow.corpus import LISTS, OPTED_OUT

CLASSIFIER = JOBS["corpus_train"]
SCORE = JOBS["corpus_score"]
SELECT = JOBS["corpus_select"]
FORMULAS = JOBS["corpus_formulas"]


use rule miniweb_web as corpus_train with:
    """Train the iteration's classifier and measure it."""
    input:
        pool=CLASSIFIER.reads("pool"),
        lists=CLASSIFIER.reads(*LISTS),
        unseen=CLASSIFIER.reads("out_of_distribution."),
        previous=CLASSIFIER.reads("previous", "new_round", "previous_score"),
        second_stage=CLASSIFIER.reads("embeddings", "grades"),
        tokenizer=CLASSIFIER.reads("tokenizer"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/train/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/train/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/train-{key}.log",
    params:
        words=CLASSIFIER.words,


use rule miniweb_web as corpus_score with:
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
    params:
        words=SCORE.words,


use rule miniweb_web as corpus_select with:
    """Select pages, find mathematical domains, extend the seed."""
    input:
        train=SELECT.reads("train"),
        pool=SELECT.reads("pool"),
        score=SELECT.reads("score"),
        lists=SELECT.reads(*LISTS),
        previous=SELECT.reads("previous", "new_round", "previous_score"),
    output:
        manifest="<store>/corpus/iteration-{iteration}/select/{key}/manifest.json",
        data=directory("<store>/corpus/iteration-{iteration}/select/{key}/data"),
    log:
        "<logs>/corpus/iteration-{iteration}/select-{key}.log",
    params:
        words=SELECT.words,


use rule miniweb_web as corpus_formulas with:
    """Select English pages with formulas, a simple rule to compare with."""
    input:
        pool=FORMULAS.reads("pool"),
        lists=FORMULAS.reads(*OPTED_OUT),
    output:
        manifest="<store>/corpus/formulas/{key}/manifest.json",
        data=directory("<store>/corpus/formulas/{key}/data"),
    log:
        "<logs>/corpus/formulas-{key}.log",
    params:
        words=FORMULAS.words,
