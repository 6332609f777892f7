"""Documents of a packed row, each as transformers computes it alone; or one at a time where packing fails.

Many families let documents of a row leak into each other: recurrent and convolution layers carry state over,
some choose their own attention, some scale their logits. No list of them is kept. A `PackedModel` checks
itself at its first forward pass, on the device, in the type and with the attention that trains: packed
documents, one of them longer than the model's windows, must get the numbers that transformers gives each
alone. Otherwise documents of equal length pass through the model together and others apart, which needs no
support by the model, and the check is repeated: a model that fails again is refused.

Shape suffixes: B rows, T positions, N = B*T, D hidden size, S documents, K keys.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipeline.core.ending import say
from pipeline.core.errors import InputError
from pipeline.training.attention import DOCUMENTS, document_arguments, shared_arguments
from pipeline.training.packing import IGNORE

# Largest difference of a number in fp32, mean difference of a document in bf16. Rounding gives 1e-5 and up to
# 0.05 on small models, and transformers rounds its logits in bf16; leaks gave 0.1 to 4.
BOUND = {"fp32": 1e-4, "bf16": 0.2}
SHORT, BEGINNING, OWN = 24, 40, 9  # tokens of the documents of the check, beside the long one
COMPARED = 64  # positions at the end of the long document: logits of all would take gigabytes
WINDOWS = (
    "sliding_window",
    "attention_chunk_size",
    "attention_window_size",
    "original_max_position_embeddings",
)


class PackedModel(nn.Module, ABC):
    """Base of modules that run a transformers model on packed rows. Subclasses have a `trunk`, the model
    without its output layer.

    Args:
        model: the transformers model.
        mixed: matrix products run in bf16 on fp32 weights.
        longest: tokens of the longest document to come; the longest that the model supports if None.
    """

    trunk: nn.Module

    def __init__(self, model: nn.Module, mixed: bool = False, longest: int | None = None) -> None:
        super().__init__()
        self.mixed, self.longest = mixed, longest
        self.usual_attention = model.config._attn_implementation
        self.apart = False
        self.verdict: dict[str, Any] | None = None
        self.set_attention = model.set_attn_implementation
        self.set_attention(DOCUMENTS)

    @abstractmethod
    def alone(self, tokens_1T: Tensor, targets_1T: Tensor) -> Tensor:
        """Return what transformers computes of one document, (T,) or (T, D)."""

    @abstractmethod
    def packed(
        self, tokens_BT: Tensor, positions_BT: Tensor, targets_BT: Tensor, documents: dict[str, Any] | None
    ) -> Tensor:
        """Return the same of packed documents, (B, T) or (B, T, D)."""

    def prove(self, device: torch.device) -> None:
        """Check the model if that was not done yet. An engine does so before its first forward pass: ZeRO-3
        gathers the output layer for one pass at a time.
        """
        if self.verdict is None:
            self.verdict = {}
            self.verdict = check_isolation(self, device)

    def hidden(
        self,
        tokens_BT: Tensor,
        positions_BT: Tensor,
        documents: dict[str, Any] | None = None,
        targets_BT: Tensor | None = None,
    ) -> Tensor:
        """Return last hidden states (B, T, D), which may be 0 in documents without one of `targets_BT`."""
        self.prove(tokens_BT.device)
        documents = documents or document_arguments(positions_BT)
        if self.apart:
            return self._one_by_one(tokens_BT, documents, targets_BT)
        return self.trunk(
            input_ids=tokens_BT, position_ids=positions_BT, use_cache=False, **documents
        ).last_hidden_state

    def _one_by_one(self, tokens_BT: Tensor, documents: dict[str, Any], targets_BT: Tensor | None) -> Tensor:
        """Run the model once for each length of documents; none is padded."""
        tokens_N, by_length = tokens_BT.flatten(), defaultdict[int, list[tuple[Tensor, int]]](list)
        wanted_N = None if targets_BT is None else targets_BT.flatten() != IGNORE
        for places_K, queries in _documents(documents, tokens_N):
            if wanted_N is None or wanted_N[places_K[-queries:]].any():
                by_length[len(places_K)].append((places_K, queries))
        if not by_length:  # a row without targets: the loss still needs a gradient, of 0
            by_length[1].append((torch.zeros(1, dtype=torch.long, device=tokens_N.device), 1))
        own_N, parts = [], []
        for length, members in sorted(by_length.items()):
            places_SK = torch.stack([places_K for places_K, _ in members])
            hidden_SKD = self.trunk(input_ids=tokens_N[places_SK], use_cache=False).last_hidden_state
            first_S1 = torch.tensor([[length - queries] for _, queries in members], device=tokens_N.device)
            chosen_SK = torch.arange(length, device=tokens_N.device) >= first_S1
            own_N.append(places_SK[chosen_SK])
            parts.append(hidden_SKD[chosen_SK])
        hidden_MD = torch.cat(parts)
        hidden_ND = hidden_MD.new_zeros(len(tokens_N), hidden_MD.shape[-1])
        return hidden_ND.index_copy(0, torch.cat(own_N), hidden_MD).unflatten(0, tokens_BT.shape)


def _documents(documents: dict[str, Any], tokens_N: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Yield the places of each document's keys, and how many of them, the last ones, are its own tokens."""
    queries, keys = (documents[name].diff().tolist() for name in ("cu_seq_lens_q", "cu_seq_lens_k"))
    places_K = documents.get("key_places")
    if places_K is None:
        places_K = torch.arange(len(tokens_N), device=tokens_N.device)
    yield from zip(places_K.split(keys), queries, strict=True)


def check_isolation(model: PackedModel, device: torch.device) -> dict[str, Any]:
    """Compare packed documents with each alone; switch `model.apart` on where they differ.

    Returns the verdict for `run.json`. Raises InputError if the model cannot be trained.
    """
    config = model.trunk.config
    kind, exact = config.model_type, model.trunk.dtype == torch.float32 and not model.mixed
    bound = BOUND["fp32" if exact else "bf16"]
    texts = _texts(config.get_text_config(), model.longest, device)
    with evaluating(model, device):
        model.set_attention(model.usual_attention)
        expected = [_alone(model, text) for text in texts]
        if not all(numbers.isfinite().all() for numbers in expected):
            raise InputError(f"{kind}: a document alone gets no finite numbers; start from sound weights")
        short, long, beginning, _ = expected
        later = _gap(long[:SHORT], beginning[:SHORT], exact)
        if not later <= bound:
            raise InputError(f"{kind}: its predictions change with later tokens ({later:.3g}); not causal")
        expected = [short, long, expected[3]]
        model.set_attention(DOCUMENTS)
        gap, reason = _largest_gap(model, texts, expected, exact)
        if not gap <= bound:
            if dist.is_initialized() and dist.get_world_size() > 1 and _is_split(model):
                raise InputError(f"{kind}: {reason}; set launch.zero_stage to 1 or 2, or train on one GPU")
            model.apart = True
            model.set_attention(model.usual_attention)
            gap, again = _largest_gap(model, texts, expected, exact)
            if not gap <= bound:
                raise InputError(f"{kind}: training would get other numbers than transformers ({again})")
            if not dist.is_initialized() or dist.get_rank() == 0:
                say(f"{kind}: {reason}; documents pass through it one at a time, which is slower")
    return {"documents": "one at a time" if model.apart else "packed", "gap": gap, "bound": bound}


def _texts(config: Any, longest: int | None, device: torch.device) -> list[Tensor]:
    """Return token ids: short, longer than the model's windows, the beginning of the latter, and one that
    begins as the first does.
    """
    longest = longest or getattr(config, "max_position_embeddings", None) or 1 << 30
    ropes = getattr(config, "rope_parameters", None) or {}
    facts = [vars(config), ropes, *(rope for rope in ropes.values() if isinstance(rope, dict))]
    windows = [window for fact in facts for window in map(fact.get, WINDOWS) if isinstance(window, int)]
    length = max(max([window for window in windows if window < longest], default=0) + 32, 2 * BEGINNING)
    size = max(min(length, longest), BEGINNING)
    place = torch.arange(SHORT + size + OWN, device=device)
    tokens = (7919 * place + place**2) % config.vocab_size
    short, long, end = tokens.split([SHORT, size, OWN])
    return [short, long, long[:BEGINNING], torch.cat([short, end])]


def _alone(model: PackedModel, text: Tensor) -> Tensor:
    try:
        return model.alone(text[None], text.roll(-1)[None])
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        kind, reason = model.trunk.config.model_type, f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(f"{kind}: transformers cannot run this model ({reason})") from error


@contextmanager
def evaluating(model: PackedModel, device: torch.device) -> Iterator[None]:
    """Run without gradients, dropout and compilation, in the type of training."""
    training = model.training
    model.eval()
    eager = torch.compiler.set_stance("force_eager") if device.type == "cuda" else torch.no_grad()
    try:
        with torch.no_grad(), eager, torch.autocast(device.type, torch.bfloat16, enabled=model.mixed):
            yield
    finally:
        model.train(training)


def _largest_gap(
    model: PackedModel, texts: list[Tensor], expected: list[Tensor], exact: bool
) -> tuple[float, str]:
    """Return the largest gap of the documents, whole in a row or with a shared beginning, and the reason for
    it.
    """
    short, long, _, more = texts
    places = torch.arange(SHORT + len(long) + OWN, device=short.device)
    keys = torch.cat([places[: SHORT + len(long)], places[:SHORT], places[-OWN:]])
    lengths = [torch.tensor([SHORT, len(long), last]) for last in (OWN, SHORT + OWN)]
    shared = shared_arguments(*(length.to(short.device) for length in lengths), keys, len(places))
    gaps = [0.0]
    try:
        for last, documents in ((more, None), (more[SHORT:], shared)):
            tokens = torch.cat([short, long, last])
            starts = [0, 0, len(more) - len(last)]
            positions = [torch.arange(len(part), device=short.device) for part in (short, long, last)]
            positions = torch.cat([part + start for part, start in zip(positions, starts, strict=True)])
            targets = torch.cat([short.roll(-1), long.roll(-1), more.roll(-1)[-len(last) :]])
            row = tokens[None], positions[None], targets[None]
            seen = model.packed(*row, documents)[0].split([SHORT, len(long), len(last)])
            seen = [seen[0], compared(seen[1]), seen[2]]
            gaps += [_gap(a, b[-len(a) :], exact) for a, b in zip(seen, expected, strict=True)]
    except (torch.OutOfMemoryError, InputError):
        raise
    except Exception as error:  # a family may lack any argument or attribute
        return torch.inf, f"packing fails ({type(error).__name__}: {str(error).splitlines()[0][:80]})"
    largest = max(gaps, key=lambda gap: torch.inf if gap != gap else gap)
    return largest, f"documents of a packed row differ from each alone by {largest:.3g}"


def compared(values: Tensor) -> Tensor:
    """Return the compared positions of a document: its beginning and its end, or all if it is short."""
    if len(values) <= BEGINNING + COMPARED:
        return values
    return torch.cat([values[:BEGINNING], values[-COMPARED:]])


def _gap(left: Tensor, right: Tensor, exact: bool) -> float:
    gaps = (left - right).abs()
    return float(gaps.max() if exact else gaps.mean())


def _is_split(model: nn.Module) -> bool:
    """Say whether ZeRO-3 splits the weights: its ranks must run the model equally often."""
    return any(hasattr(parameter, "ds_id") for parameter in model.parameters())
