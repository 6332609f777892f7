"""Any stage without a chapter of its own: its training curves if it has any, and its results' counts."""

from typing import Any

from pipeline.report.figures import Figure, figure, logged
from pipeline.report.material import Material

LEADS = {
    "miniweb": "A small web generated from a seed, with known truth: which pages are mathematics, which are"
    " copies, and which leak a test question.",
    "problems": "Word problems with equations, without copies and without those that share a run of words"
    " with a benchmark's question, in disjoint parts for fine-tuning, RL and development.",
    "tokens": "Tokenizer and memory-mapped mixtures that the base models read.",
    "cpt": "Next-token prediction; the learning rate drops twice, late in training (paper section 2.3).",
    "sft": "Solved problems, packed; the loss is on the answers only (paper section 3.2).",
}


def curves(material: Material, stage: str) -> dict[str, Figure]:
    """Loss, learning rate and gradient norm of the models of a stage."""
    found, run = {}, material.run
    for key, title in (("loss", "nats per token"), ("lr", ""), ("grad_norm", "")):
        if traces := logged(run.of(stage), "metrics.jsonl", key, run.palette):
            axis = {"exponentformat": "e"} if key == "lr" else {}
            found[f"{stage}-{key}"] = figure(traces, "step", title, yaxis=axis)
    return found


def chapter(material: Material, stage: str) -> dict[str, Any]:
    """Curves and counts of a stage."""
    lead = LEADS.get(stage, "")
    return {"results": material.run.of(stage), "lead": lead, "figures": curves(material, stage)}
