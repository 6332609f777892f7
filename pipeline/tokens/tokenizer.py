"""Train the run's own tokenizer: byte-level BPE with single digits, for models that start from scratch.

The paper uses DeepSeek-LLM's tokenizer of about 100K entries; ours too is byte-level and splits numbers into
digits. Chat template: the paper's (`pipeline/training/chat.py`). Equal texts give equal bytes.
"""

from collections.abc import Iterator
from itertools import islice

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from pipeline.config.tokens import TokensSection
from pipeline.core.progress import Progress
from pipeline.core.stage import Counts, InputError, Stage, label, run_stage
from pipeline.tokens.texts import read_texts
from pipeline.training.chat import CHAT_TEMPLATE

SAMPLE = 100_000_000  # characters to learn from, shared equally among the sources
BOS, EOS, PAD = SPECIAL = ("<bos>", "<eos>", "<pad>")


def sample(sources: list[str], characters: int) -> Iterator[str]:
    """Texts from the start of each source, an equal number of characters from each."""
    for source in sources:
        left = characters // len(sources)
        for text in read_texts(source):
            yield text[:left]
            left -= len(text)
            if left <= 0:
                break


def train(texts: Iterator[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE of at most `vocabulary` entries. Raises InputError without any text."""
    first = list(islice(texts, 1))
    if not first:
        raise InputError("tokenizer: no text to learn from; the corpus and `tokens.texts` are empty")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for part in (first, texts) for text in part), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, pad_token=PAD)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def run(stage: Stage[TokensSection]) -> Counts:
    """Train on `corpus`, a decontaminated corpus, and `text`, more files. Output: a tokenizer folder."""
    corpora = stage.inputs.get("corpus", [])
    sources = [*corpora, *stage.inputs.get("text", [])]
    with Progress(f"{label(stage)}: reads texts", SAMPLE, unit="character") as bar:

        def texts() -> Iterator[str]:
            for text in sample(sources, SAMPLE):
                yield text
                bar.update(len(text))

        tokenizer = train(texts(), stage.config.vocabulary)
    tokenizer.save_pretrained(stage.partial)
    return {"sources": len(sources), "vocabulary": len(tokenizer)}


if __name__ == "__main__":
    run_stage("tokens", TokensSection, run)
