"""Rounds of reward model and policy (paper section 4.1.4) as nodes of the graph."""

from pipeline.config.root import Config
from workflow.graph import Graph, Result


def rounds(**change: dict) -> dict:
    """The two rounds of iterative GRPO (paper 4.1.4) as nodes; `change` adds to the named ones."""
    node, questions = {"benchmarks": []}, "miniweb:rl.jsonl"
    models = {
        "base": {"stage": "cpt", "init": "some/base", "train": False},
        "instruct": {"stage": "sft", "parent": "base", "data": "miniweb:sft.jsonl"},
        "rm-0": {"stage": "reward", "parent": "base", "policy": "instruct", "prompts": questions},
        "grpo-1": {"stage": "rl", "parent": "instruct", "reward_model": "rm-0", "prompts": questions},
        "rm-1": {"stage": "reward", "parent": "rm-0", "policy": "grpo-1", "prompts": questions},
        "grpo-2": {"stage": "rl", "parent": "grpo-1", "reward_model": "rm-1", "prompts": questions},
        "rm-2": {"stage": "reward", "parent": "rm-1", "policy": "grpo-2", "prompts": questions},
    }
    models = {name: node | values | change.get(name.replace("-", "_"), {}) for name, values in models.items()}
    return {"miniweb": {"enabled": True}, "models": models}


def test_rounds_of_reward_model_and_policy_are_nodes():
    graph = Graph(Config(rounds()))
    inputs = dict(graph.nodes["reward/rm-1"].inputs)
    assert inputs["parent"] == Result("reward/rm-0") and inputs["policy"] == Result("rl/grpo-1")
    history = [source for key, source in graph.nodes["reward/rm-2"].inputs if key == "history"]
    assert history == [Result("reward/rm-1", "labels.jsonl"), Result("reward/rm-0", "labels.jsonl")]
    assert "history" not in dict(graph.nodes["reward/rm-0"].inputs)
    second = dict(graph.nodes["rl/grpo-2"].inputs)
    assert second["parent"] == Result("rl/grpo-1") and second["reward_model"] == Result("reward/rm-1")
    assert "history" not in dict(Graph(Config(rounds(rm_1={"replay": 0}))).nodes["reward/rm-1"].inputs)


def made_from(graph: Graph, name: str) -> list:
    """The section of an instance and those of all that it is made from."""
    sources = [made_from(graph, x.node) if isinstance(x, Result) else x for _, x in graph.nodes[name].inputs]
    return [graph.nodes[name].section, sources]


def changed(**change: dict) -> set[str]:
    """Models that are made from something else when nodes change."""
    before, after = Graph(Config(rounds())), Graph(Config(rounds(**change)))
    names = [name for stage in ("sft", "reward", "rl") for name in before.names(stage)]
    return {
        before.nodes[name].instance for name in names if made_from(before, name) != made_from(after, name)
    }


def test_a_change_reaches_the_rounds_after_it_and_no_other():
    everything = {"rm-0", "grpo-1", "rm-1", "grpo-2", "rm-2"}
    assert changed(rm_0={"completions": 3}) == everything
    assert changed(grpo_1={"kl_coefficient": 0.1}) == everything - {"rm-0"}
    assert changed(rm_1={"replay": 0.2}) == {"rm-1", "grpo-2", "rm-2"}
