"""All stages in their order: what each is called, configured and started as. The one list of them.

To add a stage: its section in `config/`, a row here, its program, and its instances in `workflow/graph.py`.
"""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module

from pipeline.config.section import Section


def _section(name: str) -> type[Section]:
    """Return the section `MODULE:CLASS` of the room `config`; loaded when asked for, so that the names and
    titles of stages do not depend on the keys of all of them.
    """
    module, _, kind = name.partition(":")
    return getattr(import_module(f"pipeline.config.{module}"), kind)


@dataclass(frozen=True)
class Program:
    """A program and the rule that runs it; `instances` is the pattern of its instances' names."""

    rule: str
    instances: str
    module: str
    config: str | None = None  # None: the section of its stage


@dataclass(frozen=True)
class StageRow:
    """A stage. `makes`: what its models do: nothing (no models), `text`, or `scores`."""

    name: str
    title: str
    config: str
    programs: tuple[Program, ...]
    makes: str = "nothing"

    @cached_property
    def section(self) -> type[Section]:
        """The class of its section."""
        return _section(self.config)


STAGES = (
    StageRow(
        "miniweb",
        "The generated web",
        "miniweb:MiniwebSection",
        (Program("miniweb_web", "miniweb", "pipeline.miniweb"),),
    ),
    StageRow(
        "problems",
        "Word problems",
        "problems:ProblemsSection",
        (Program("problems_parts", "problems", "pipeline.problems"),),
    ),
    StageRow(
        "crawl",
        "Crawl",
        "crawl:CrawlSection",
        (
            Program("crawl_lookup", "crawl/lookup", "pipeline.crawl.lookup", "crawl:LookupSection"),
            Program("crawl_extract", "crawl/extract-{shard}", "pipeline.crawl.extract"),
            Program("crawl_sign", "crawl/sign-{shard}", "pipeline.crawl.sign"),
            Program("crawl_exact", "crawl/exact", "pipeline.crawl.exact"),
            Program("crawl_exact_of", "crawl/exact-{dump}", "pipeline.crawl.exact"),
            Program("crawl_buckets", "crawl/buckets-{part}", "pipeline.crawl.buckets"),
            Program("crawl_cluster", "crawl/cluster-{part}", "pipeline.crawl.cluster"),
            Program("crawl_resolve", "crawl/resolve-{part}", "pipeline.crawl.resolve"),
            Program("crawl_filter", "crawl/filter-{part}", "pipeline.crawl.filter"),
            Program("crawl_across_dumps", "crawl/across_dumps-{dump}", "pipeline.crawl.across_dumps"),
            Program("crawl_dedup", "crawl/dedup", "pipeline.crawl.dedup"),
        ),
    ),
    StageRow(
        "corpus",
        "Corpus",
        "corpus:CorpusSection",
        (
            *(
                Program(f"corpus_{part}", f"corpus/iteration-{{iteration}}/{name}", f"pipeline.corpus.{part}")
                for part, name in (
                    ("train", "train"),
                    ("score", "score-{shard}"),
                    ("select", "select"),
                )
            ),
            Program("corpus_formulas", "corpus/formulas", "pipeline.corpus.formulas"),
        ),
    ),
    StageRow(
        "decontaminate",
        "Decontamination",
        "decontaminate:DecontaminateSection",
        (
            Program("decontaminate_clean", "decontaminate/clean-{shard}", "pipeline.decontaminate.clean"),
            Program("decontaminate_corpus", "decontaminate/corpus", "pipeline.decontaminate"),
            Program("decontaminate_pages", "decontaminate/pages", "pipeline.decontaminate.pages"),
            Program("decontaminate_pages_part", "decontaminate/pages-{part}", "pipeline.decontaminate.pages"),
            *(
                Program(f"{program}_of", f"decontaminate/{{selection}}/{name}", module)
                for program, name, module in (
                    ("decontaminate_clean", "clean-{shard}", "pipeline.decontaminate.clean"),
                    ("decontaminate_corpus", "corpus", "pipeline.decontaminate"),
                )
            ),
        ),
    ),
    StageRow(
        "tokens",
        "Tokens",
        "tokens:TokensSection",
        (
            Program("tokens_tokenizer", "tokens/tokenizer", "pipeline.tokens.tokenizer"),
            Program("tokens_mixture", "tokens/{mixture}", "pipeline.tokens", "tokens:MixtureNode"),
        ),
    ),
    StageRow(
        "cpt",
        "Continued pre-training",
        "cpt:CptSection",
        (Program("cpt_model", "cpt/{model}", "pipeline.cpt"),),
        "text",
    ),
    StageRow(
        "sft",
        "Supervised fine-tuning",
        "sft:SftSection",
        (Program("sft_model", "sft/{model}", "pipeline.sft"),),
        "text",
    ),
    StageRow(
        "reward",
        "Reward models",
        "reward:RewardSection",
        (Program("reward_model", "reward/{model}", "pipeline.reward"),),
        "scores",
    ),
    StageRow(
        "rl",
        "Reinforcement learning",
        "rl:RlSection",
        (Program("rl_model", "rl/{model}", "pipeline.rl"),),
        "text",
    ),
    StageRow(
        "evaluate",
        "Evaluation",
        "evaluate:EvaluateSection",
        (Program("evaluate_model", "evaluate/{model}", "pipeline.evaluate"),),
    ),
    StageRow(
        "trajectory",
        "Benchmarks over tokens",
        "evaluate:TrajectorySection",
        (
            Program(
                "trajectory_model",
                "trajectory/{model}/{tokens}",
                "pipeline.evaluate.trajectory",
                "evaluate:EvaluateSection",
            ),
        ),
    ),
    StageRow(
        "report", "Report", "report:ReportSection", (Program("report_page", "report", "pipeline.report"),)
    ),
)
NAMES = tuple(stage.name for stage in STAGES)
MODEL_STAGES = tuple(stage.name for stage in STAGES if stage.makes != "nothing")
TEXT_STAGES = tuple(stage.name for stage in STAGES if stage.makes == "text")


def program_of(module: str) -> tuple[str, type[Section]] | None:
    """Return the stage and the section of a program; None for what is no stage program."""
    for stage in STAGES:
        for program in stage.programs:
            if program.module == module:
                return stage.name, _section(program.config or stage.config)
    return None
