"""All stages in their order: what each is called, configured and started as. The one list of them.

To add a stage: its section in `config/`, a row here, its program, and its instances in `workflow/graph.py`.
"""

from dataclasses import dataclass

from pipeline.config.corpus import CorpusSection
from pipeline.config.cpt import CptSection
from pipeline.config.crawl import CrawlSection
from pipeline.config.decontaminate import DecontaminateSection
from pipeline.config.evaluate import EvaluateSection
from pipeline.config.miniweb import MiniwebSection
from pipeline.config.report import ReportSection
from pipeline.config.reward import RewardSection
from pipeline.config.rl import RlSection
from pipeline.config.section import Section
from pipeline.config.sft import SftSection
from pipeline.config.tokens import MixtureNode, TokensSection


@dataclass(frozen=True)
class Program:
    """A program and the rule that runs it; `instances` is the pattern of its instances' names."""

    rule: str
    instances: str
    module: str
    section: type[Section] | None = None  # None: the section of its stage


@dataclass(frozen=True)
class StageRow:
    """A stage. `makes`: what its models do: nothing (no models), `text`, or `scores`."""

    name: str
    title: str
    section: type[Section]
    programs: tuple[Program, ...]
    makes: str = "nothing"


STAGES = (
    StageRow(
        "miniweb", "The generated web", MiniwebSection, (Program("miniweb", "miniweb", "pipeline.miniweb"),)
    ),
    StageRow(
        "crawl",
        "Crawl",
        CrawlSection,
        (
            Program("crawl_extract", "crawl/extract-{shard}", "pipeline.crawl.extract"),
            Program("crawl_dedup", "crawl/dedup", "pipeline.crawl.dedup"),
        ),
    ),
    StageRow(
        "corpus",
        "Corpus",
        CorpusSection,
        tuple(
            Program(f"corpus_{part}", f"corpus/iteration-{{iteration}}/{name}", f"pipeline.corpus.{part}")
            for part, name in (("train", "train"), ("score", "score-{shard}"), ("select", "select"))
        ),
    ),
    StageRow(
        "decontaminate",
        "Decontamination",
        DecontaminateSection,
        (
            Program("decontaminate_corpus", "decontaminate/corpus", "pipeline.decontaminate"),
            Program("decontaminate_pages", "decontaminate/pages", "pipeline.decontaminate.pages"),
        ),
    ),
    StageRow(
        "tokens",
        "Tokens",
        TokensSection,
        (
            Program("tokens_tokenizer", "tokens/tokenizer", "pipeline.tokens.tokenizer"),
            Program("tokens_mixture", "tokens/{mixture}", "pipeline.tokens", MixtureNode),
        ),
    ),
    StageRow(
        "cpt",
        "Continued pre-training",
        CptSection,
        (Program("cpt_model", "cpt/{model}", "pipeline.cpt"),),
        "text",
    ),
    StageRow(
        "sft",
        "Supervised fine-tuning",
        SftSection,
        (Program("sft_model", "sft/{model}", "pipeline.sft"),),
        "text",
    ),
    StageRow(
        "reward",
        "Reward models",
        RewardSection,
        (Program("reward_model", "reward/{model}", "pipeline.reward"),),
        "scores",
    ),
    StageRow(
        "rl",
        "Reinforcement learning",
        RlSection,
        (Program("rl_model", "rl/{model}", "pipeline.rl"),),
        "text",
    ),
    StageRow(
        "evaluate",
        "Evaluation",
        EvaluateSection,
        (Program("evaluate_model", "evaluate/{model}", "pipeline.evaluate"),),
    ),
    StageRow("report", "Report", ReportSection, (Program("report", "report", "pipeline.report"),)),
)
NAMES = tuple(stage.name for stage in STAGES)
MODEL_STAGES = tuple(stage.name for stage in STAGES if stage.makes != "nothing")
TEXT_STAGES = tuple(stage.name for stage in STAGES if stage.makes == "text")
SECTIONS = {
    program.module: program.section or stage.section for stage in STAGES for program in stage.programs
}


def stage_of(module: str) -> str:
    """The stage that a program belongs to."""
    return next(stage.name for stage in STAGES for program in stage.programs if program.module == module)
