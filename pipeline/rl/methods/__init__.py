"""RL methods in the paper's unified view (5.2.1, Table 10): data source, judge and gradient coefficient.

The gradient of every method is the mean of coefficient x grad log pi(token). Methods differ in who wrote the
outputs, who judges them, and how strongly a token is pushed (positive) or pulled down (negative). Table 10's
first row, SFT (outputs written by people, no judge, coefficient 1), is a stage of its own, `pipeline.sft`.

To add a method, write `pipeline/rl/methods/NAME.py` with a `METHOD`: `rl.method: NAME` then selects it, and
training, the sampler and `pipeline.cli.plan` ask it for what they need. Keys that no other method has go to
`pipeline/config/rl.py`. A method to try may stay in a file of its own: `rl.method: my/loss.py:METHOD`.
"""

import importlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from pipeline.config.rl import RlSection
from pipeline.core.errors import InputError
from pipeline.core.own_files import load_attribute

if TYPE_CHECKING:
    from pipeline.rl.metrics import Watched
    from pipeline.rl.packed_outputs import MicroBatch, Output
    from pipeline.rl.rollout import Group


@dataclass(frozen=True)
class Method:
    """A row of Table 10, and how it trains.

    source: who writes the outputs: the model that training starts from, or the policy as it is
    judge: whose reward the paper used: the rule (is the answer right) or a reward model
    outputs: (groups, section) -> what to train on; leave out what cannot change the gradient
    loss: (section, micro-batch, log-probabilities (N,), watched) -> the micro-batch's part of the loss, with
        tokens weighted by `packed.weights_N`; what it adds to `watched` is summed and logged
    coefficient: (section, micro-batch, log-probabilities (N,)) -> Table 10's gradient coefficients (N,), for
        the first update, when policy and old policy are one: the loss's gradient divided by -`weights_N`
    reference: whether `loss` or the critic reads the log-probabilities of the frozen initial model
    critic: whether a critic turns rewards into advantages (PPO)
    pairs: whether outputs come in pairs, the right one first; a pair shares a row and pairs weigh the same
    supervision: kinds of supervision (4.1.2, 4.1.3) that it can use
    """

    source: Literal["parent", "policy"]
    judge: Literal["rule", "model"]
    outputs: "Callable[[Sequence[Group], RlSection], list[Output]]"
    loss: "Callable[[RlSection, MicroBatch, Tensor, Watched], Tensor]"
    coefficient: "Callable[[RlSection, MicroBatch, Tensor], Tensor]"
    reference: Callable[[RlSection], bool]
    critic: bool = False
    pairs: bool = False
    supervision: tuple[str, ...] = ("outcome",)

    @property
    def online(self) -> bool:
        """Whether outputs come from the policy as it is."""
        return self.source == "policy"


def method_of(section: RlSection) -> Method:
    """Return the method that `rl.method` names. Raises InputError where a file of the user's defines none."""
    if section.method_file:
        return _own_method(section.method)
    return importlib.import_module(f"{__name__}.{section.method}").METHOD


@cache
def _own_method(name: str) -> Method:
    """Load the method that `FILE.py:NAME` names; where its loss fails, one line says so."""
    method = load_attribute(name, "rl.method")
    if not isinstance(method, Method):
        told = f"rl.method: {name}: {type(method).__name__}, no Method"
        raise InputError(f"{told}; make one of another: METHOD = replace(grpo.METHOD, loss=loss)")
    file, told = str(Path(name.rpartition(":")[0]).absolute()), f"rl.method: {name}: its loss"

    def loss(section: RlSection, batch: "MicroBatch", logprobs_N: Tensor, watched: "Watched") -> Tensor:
        try:
            found = method.loss(section, batch, logprobs_N, watched)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == file]
            where = f" in line {lines[-1]}" if lines else ""
            raise InputError(f"{told} failed{where}: {type(error).__name__}: {error}") from error
        if not isinstance(found, Tensor) or found.numel() != 1 or not found.requires_grad:
            what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            raise InputError(f"{told} gave {what}; expected a number with a gradient: a sum over the tokens")
        return found

    return replace(method, loss=loss)
