"""All stages and their programs, in order: what each is called, configured and started as.

To add a stage: its section in `config/`, a row in each table here, its program and rule, and its instances in
`workflow/graph.py`.
"""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module

from pipeline.core.section import Section

# What the wildcards of rules stand for; `which` and `selection` may be empty.
WILDCARDS = {
    "key": "[0-9a-f]{16}",
    "iteration": "[0-9]+",
    "mixture": "(?!tokenizer(/|$))[^/]+",
    "selection": "([^/]+/)?",
    "which": "(-[^/]+)?",
    **dict.fromkeys(["model", "part", "shard", "tokens"], "[^/]+"),
}


@dataclass(frozen=True)
class StageRow:
    """A stage. `config`: its section as MODULE:CLASS of the room `config`. `makes`: what its models do:
    nothing (no models), `text`, or `scores`.
    """

    name: str
    title: str
    config: str
    makes: str = "nothing"

    @cached_property
    def section(self) -> type[Section]:
        """The class of its section."""
        return _section(self.config)


@dataclass(frozen=True)
class Program:
    """A program and the rule that runs it, whose name begins with the stage. `config`: its section; without
    one, that of its stage.
    """

    rule: str
    module: str
    config: str | None = None

    @property
    def stage(self) -> str:
        """The name of its stage."""
        return self.rule.partition("_")[0]


STAGES = (
    StageRow("miniweb", "The generated web", "miniweb:MiniwebSection"),
    StageRow("problems", "Word problems", "problems:ProblemsSection"),
    StageRow("crawl", "Crawl", "crawl:CrawlSection"),
    StageRow("corpus", "Corpus", "corpus:CorpusSection"),
    StageRow("decontaminate", "Decontamination", "decontaminate:DecontaminateSection"),
    StageRow("tokens", "Tokens", "tokens:TokensSection"),
    StageRow("cpt", "Continued pre-training", "cpt:CptSection", "text"),
    StageRow("sft", "Supervised fine-tuning", "sft:SftSection", "text"),
    StageRow("reward", "Reward models", "reward:RewardSection", "scores"),
    StageRow("rl", "Reinforcement learning", "rl:RlSection", "text"),
    StageRow("evaluate", "Evaluation", "evaluate:EvaluateSection"),
    StageRow("trajectory", "Benchmarks over tokens", "evaluate:TrajectorySection"),
    StageRow("report", "Report", "report:ReportSection"),
)
PROGRAMS = (
    Program("miniweb_web", "pipeline.examples.miniweb"),
    Program("problems_parts", "pipeline.examples.problems"),
    Program("crawl_extract", "pipeline.crawl.extract"),
    Program("crawl_sign", "pipeline.crawl.sign"),
    Program("crawl_exact", "pipeline.crawl.exact"),
    Program("crawl_buckets", "pipeline.crawl.buckets"),
    Program("crawl_survivors", "pipeline.crawl.survivors"),
    Program("crawl_filter", "pipeline.crawl.filter"),
    Program("crawl_dedup", "pipeline.crawl.dedup"),
    Program("corpus_train", "pipeline.corpus.train"),
    Program("corpus_score", "pipeline.corpus.score"),
    Program("corpus_select", "pipeline.corpus.select"),
    Program("corpus_formulas", "pipeline.corpus.formulas"),
    Program("decontaminate_clean", "pipeline.decontaminate.clean"),
    Program("decontaminate_corpus", "pipeline.decontaminate"),
    Program("decontaminate_pages", "pipeline.decontaminate.pages"),
    Program("tokens_tokenizer", "pipeline.tokens.tokenizer"),
    Program("tokens_mixture", "pipeline.tokens", "tokens:MixtureNode"),
    Program("cpt_model", "pipeline.cpt"),
    Program("sft_model", "pipeline.sft"),
    Program("reward_model", "pipeline.reward"),
    Program("rl_model", "pipeline.rl"),
    Program("evaluate_model", "pipeline.evaluate"),
    Program("trajectory_model", "pipeline.evaluate.trajectory", "evaluate:EvaluateSection"),
    Program("report_page", "pipeline.report"),
)
NAMES = tuple(stage.name for stage in STAGES)
MODEL_STAGES = tuple(stage.name for stage in STAGES if stage.makes != "nothing")
TEXT_STAGES = tuple(stage.name for stage in STAGES if stage.makes == "text")


def program_of(module: str) -> tuple[str, type[Section]] | None:
    """Return the stage and the section of a program; None for what is no stage program."""
    program = next((each for each in PROGRAMS if each.module == module), None)
    if program is None:
        return None
    return program.stage, _section(program.config or STAGES[NAMES.index(program.stage)].config)


def _section(name: str) -> type[Section]:
    """Load the section `MODULE:CLASS` of the room `config`, only when asked for: the names and titles of
    stages do not depend on the keys of all of them.
    """
    module, _, kind = name.partition(":")
    return getattr(import_module(f"pipeline.config.{module}"), kind)
