# Supervised fine-tuning.

INSTRUCT = JOBS["sft_model"]


use rule annotate_model as sft_model with:
    """Fine-tune a model on solutions (section 3)."""
    input:
        parent=INSTRUCT.reads("parent", "init"),
        data=INSTRUCT.reads("data"),
    output:
        manifest="<store>/sft/{model}/{key}/manifest.json",
        data=directory("<store>/sft/{model}/{key}/data"),
    log:
        "<logs>/sft/{model}-{key}.log",
    threads: INSTRUCT.cores
    params:
        words=INSTRUCT.words,
