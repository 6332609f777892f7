# Supervised fine-tuning.


use rule cpt_model as sft_model with:
    """Fine-tune a model on solutions (section 3)."""
    output:
        manifest="<store>/sft/{model}/{key}/manifest.json",
        data=directory("<store>/sft/{model}/{key}/data"),
    log:
        "<logs>/sft/{model}-{key}.log",
