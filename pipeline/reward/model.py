"""The reward model: the trunk of a language model with a scalar head, read at the last token of each step.

Its folder holds the trunk as transformers saves it, `head.safetensors`, the tokenizer, and `reward.json` (how
steps are split, what it was trained to predict). Shape suffixes: B rows, T positions, D hidden size, S steps.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel

from pipeline.core.stage import InputError
from pipeline.reward.steps import locate_steps
from pipeline.training.engine import FROZEN, build_frozen, start_process_group
from pipeline.training.isolation import PackedModel, compared
from pipeline.training.model import load_shared_model, save_weights
from pipeline.training.packing import concatenate
from pipeline.training.tokenizer import load_tokenizer

HEAD = "head.safetensors"
SETTINGS = "reward.json"


class ScalarModel(PackedModel):
    """The trunk of a language model with a scalar head that starts at 0."""

    def __init__(self, trunk: nn.Module) -> None:
        super().__init__(trunk)
        self.trunk = trunk
        self.head = nn.Linear(trunk.config.get_text_config().hidden_size, 1, dtype=trunk.dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def scalars(
        self, tokens_BT: Tensor, positions_BT: Tensor, documents: dict[str, Any] | None, places: Tensor
    ) -> Tensor:
        """Return fp32 scalars at `places`, positions in the rows laid end to end."""
        hidden_ND = self.hidden(tokens_BT, positions_BT, documents).flatten(0, 1)
        return self.head(hidden_ND.index_select(0, places)).squeeze(-1).float()

    def alone(self, tokens_1T: Tensor, targets_1T: Tensor) -> Tensor:
        """Return the last hidden states (T, D) that transformers computes of one document, by their size."""
        hidden_TD = self.trunk(input_ids=tokens_1T, use_cache=False).last_hidden_state[0]
        return compared(functional.rms_norm(hidden_TD.float(), hidden_TD.shape[-1:]))

    def packed(
        self, tokens_BT: Tensor, positions_BT: Tensor, targets_BT: Tensor, documents: dict[str, Any] | None
    ) -> Tensor:
        """Return the last hidden states (B, T, D) of packed documents, by their size."""
        hidden_BTD = self.hidden(tokens_BT, positions_BT, documents)
        return functional.rms_norm(hidden_BTD.float(), hidden_BTD.shape[-1:])


class RewardModel(ScalarModel):
    """Logit that a solution so far leads to the right answer, at chosen positions."""

    def forward(self, tokens_BT: Tensor, positions_BT: Tensor, rows_S: Tensor, columns_S: Tensor) -> Tensor:
        """Return fp32 logits (S,) at (row, column); positions restart from 0 at each document of a row."""
        places_S = rows_S * tokens_BT.shape[1] + columns_S
        return self.scalars(tokens_BT, positions_BT, None, places_S)


class StepRows(NamedTuple):
    """Packed sequences: tokens and positions (B, T), and the row and column (S,) of each step end."""

    tokens_BT: Tensor
    positions_BT: Tensor
    rows_S: Tensor
    columns_S: Tensor


def make_rows(
    packed: Sequence[Sequence[int]], sequences: Sequence[Sequence[int]], ends: Sequence[Sequence[int]]
) -> StepRows:
    """Return tensors of packed rows, steps in the order of `packed`; each padding token is a document."""
    width = max(sum(len(sequences[index]) for index in row) for row in packed)
    tokens = torch.zeros(len(packed), width, dtype=torch.long)
    positions = torch.zeros_like(tokens)
    rows, columns = [], []
    for number, row in enumerate(packed):
        start = 0
        for index in row:
            stop = start + len(sequences[index])
            tokens[number, start:stop] = torch.tensor(sequences[index])
            positions[number, start:stop] = torch.arange(stop - start)
            rows += [number] * len(ends[index])
            columns += [start + end for end in ends[index]]
            start = stop
    return StepRows(tokens, positions, torch.tensor(rows), torch.tensor(columns))


def load_trunk(source: str | Path, precision: str, split: str | None = None) -> nn.Module:
    """Load a model folder or hub id without its output head (see `load_shared_model`)."""
    start_process_group()
    return load_shared_model(source, precision, split, AutoModel)


def load_head(model: RewardModel, folder: Path) -> None:
    """Load the head of an earlier reward model to continue its training (paper section 4.1.4)."""
    model.head.load_state_dict(load_file(folder / HEAD))


def save_reward_model(
    folder: Path, model: RewardModel, state: dict[str, Tensor], tokenizer: Any, settings: dict[str, Any]
) -> None:
    """Write the folder; `state` holds full weights under the names of `RewardModel`."""
    trunk = {name.removeprefix("trunk."): value for name, value in state.items() if name.startswith("trunk.")}
    save_weights(model.trunk, trunk, folder)
    head = {name: state[f"head.{name}"].contiguous() for name in ("weight", "bias")}
    (folder / HEAD).write_bytes(save(head))
    tokenizer.save_pretrained(folder)
    (folder / SETTINGS).write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")


@dataclass(frozen=True)
class StepScorer:
    """A trained reward model ready to score; `settings` is its `reward.json`.

    `together`: its weights are split among ranks, so all of them must score whenever one does.
    """

    model: nn.Module
    tokenizer: Any
    settings: dict[str, Any]
    together: bool = False


def load_reward_model(
    folder: str | Path, precision: str = "fp32", device: Any = "cpu", place: str = "whole"
) -> StepScorer:
    """Load what `save_reward_model` wrote, to the `place` that `launch.frozen` names; raises InputError for
    a folder that is not a reward model's.
    """
    folder = Path(folder)
    if not (folder / SETTINGS).exists():
        raise InputError(f"{folder}: not a reward model ({SETTINGS} is missing)")
    model = RewardModel(load_trunk(folder, precision, FROZEN[place]))
    load_head(model, folder)
    settings = json.loads((folder / SETTINGS).read_text())
    frozen = build_frozen(model, precision, place, device)
    return StepScorer(frozen, load_tokenizer(folder), settings, together=place != "whole")


@torch.no_grad()
def score_steps(
    scorer: StepScorer, prompts: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]
) -> list[list[tuple[int, float]]]:
    """Return (index of its last token, probability that it is good) for each step of each output.

    `prompts` and `outputs` are token ids of the policy, whose tokenizer must be the reward model's. An
    outcome model gives one score, at the end of the last step; an output without text gets none. Scores do
    not depend on which outputs share a row or a batch.
    """
    located = (locate_steps(scorer.tokenizer, output) for output in outputs)
    ends = [[end for _, end in steps] for steps in located]
    if scorer.settings["target"] == "outcome":
        ends = [found[-1:] for found in ends]
    sequences = [[*prompt, *output] for prompt, output in zip(prompts, outputs, strict=True)]
    places = [[len(prompt) + end for end in found] for prompt, found in zip(prompts, ends, strict=True)]
    scores = score_places(scorer.model, sequences, places, together=scorer.together)
    return [list(zip(found, row, strict=True)) for found, row in zip(ends, scores, strict=True)]


@torch.no_grad()
def score_places(
    model: nn.Module,
    sequences: Sequence[Sequence[int]],
    places: Sequence[Sequence[int]],
    tokens_at_once: int = 16384,
    together: bool = False,
) -> list[list[float]]:
    """Return probabilities at the given places of each sequence.

    `together`: all ranks call it, with sequences of their own, and run the model equally often.
    """
    device = getattr(model, "device", None) or next(model.parameters()).device  # an engine's, or a module's
    found: list[list[float]] = [[] for _ in sequences]
    wanted = [index for index in range(len(sequences)) if places[index]]
    longest = max((len(sequences[index]) for index in wanted), default=1)
    together_in_rows = concatenate((len(sequences[index]) for index in wanted), longest)
    packed = [[wanted[index] for index in row] for row in together_in_rows]
    step = max(1, tokens_at_once // longest)
    groups = [packed[start : start + step] for start in range(0, len(packed), step)]
    if together:
        most = torch.tensor(len(groups), device=device)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        for _ in range(int(most) - len(groups)):
            model(
                *torch.zeros(2, 1, 1, dtype=torch.long, device=device), *torch.zeros(2, 1, dtype=torch.long)
            )
    for group in groups:
        rows = make_rows(group, sequences, places)
        scores = iter(model(*(tensor.to(device) for tensor in rows)).sigmoid().tolist())
        for index in (index for row in group for index in row):
            found[index] = [next(scores) for _ in places[index]]
    return found
