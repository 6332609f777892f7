"""Sampling from a language model with an in-process vLLM engine: token ids in, token ids and
log-probabilities out.

One class serves rollouts (paper 4.1), step-label completions and evaluation, on a CPU and on GPUs. Inside a
DeepSpeed rank it lives in the same process and takes new weights from memory. The facts behind its settings:

- A seed per request makes a sample a function of (weights, prompt, seed), whatever else is in the batch. On
  the CPU a seeded request must not be prefilled in parts (vLLM then asks for a generator offset that the CPU
  does not have).
- No way of loading weights resets the prefix cache: without a reset the next samples come from the old
  weights' keys and values.
- `processed_logprobs` are those of the distribution that was sampled from, temperature included; with top_p <
  1 they are renormalised over the nucleus, so policy training uses top_p = 1.
- On the CPU small cache blocks let the samples of one prompt share its prefill, and the cache is sized to its
  use: touching memory for the first time is the slowest part of the engine's start.
"""

import gc
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pipeline.common.environment  # noqa: F401 (sets variables that torch and vLLM read when imported)

os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # whole GiB only, and it overrides the exact size given below

import torch
from vllm import LLM, CompletionOutput, SamplingParams
from vllm.platforms import current_platform

CPU_BLOCK_TOKENS = 32
CPU_CACHE_BYTES = 512 << 20
PREFILL_TOKENS = 8192


@dataclass(frozen=True)
class Sample:
    """One generated output.

    `token_ids` ends with the stop token where one ended it; `logprobs` (natural log, same length) is empty
    unless asked for; `finish_reason` is "stop" or "length"; `text` is only set where stop strings were given.
    """

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: str
    text: str | None = None


class EngineDied(RuntimeError):
    """The sampling engine stopped working: one line with its last words."""


class Generator:
    """A vLLM engine that holds one model.

    `model_folder`: a Hugging Face folder or hub id, with its tokenizer. `max_sequences`: sequences in flight
    at once. `gpu_memory`: share of a GPU's memory it may take. Where a process group exists (a DeepSpeed
    rank), each rank has an engine of its own, or `tensor_parallel` ranks in a row share one: they must then
    ask for the same samples. `sleep`: `sleep()` gives GPU memory back. `version` counts the loads of new
    weights as the caller numbers them; 0 is the folder's.
    """

    def __init__(
        self,
        model_folder: str | os.PathLike[str],
        *,
        dtype: str,
        max_model_len: int,
        max_sequences: int = 256,
        seed: int = 0,
        gpu_memory: float = 0.9,
        tensor_parallel: int = 1,
        sleep: bool = False,
    ) -> None:
        hosted = torch.distributed.is_available() and torch.distributed.is_initialized()
        engine: dict[str, object] = {
            "gpu_memory_utilization": gpu_memory,
            "tensor_parallel_size": tensor_parallel,
            "enable_sleep_mode": sleep,
        }
        if current_platform.is_cpu():
            engine = {
                "block_size": CPU_BLOCK_TOKENS,
                "enforce_eager": True,  # compiling costs 20 s at each start and small models gain little
                "compilation_config": {"custom_ops": ["all"]},
                "enable_chunked_prefill": False,
                "kv_cache_memory_bytes": CPU_CACHE_BYTES,
            }
        self.llm = LLM(
            model=os.fspath(model_folder),
            dtype=dtype,
            seed=seed,
            max_model_len=max_model_len,
            max_num_seqs=max_sequences,
            max_num_batched_tokens=max(PREFILL_TOKENS, max_model_len),
            logprobs_mode="processed_logprobs",
            disable_log_stats=True,
            use_tqdm_on_load=False,
            distributed_executor_backend="external_launcher" if hosted else None,
            **engine,
        )
        self.version = 0
        self.can_sleep, self.asleep = sleep and not current_platform.is_cpu(), False

    def generate(
        self,
        prompts: Sequence[list[int]],
        *,
        n: int = 1,
        temperature: float = 1.0,
        top_p: float = 1.0,
        max_tokens: int,
        seeds: Sequence[int] | None = None,
        stop_token_ids: Sequence[int] = (),
        stop: Sequence[str] = (),
        logprobs: bool = False,
    ) -> list[list[Sample]]:
        """`n` samples for each prompt, in order; temperature 0 is greedy and wants `n` = 1.

        `seeds`: one for each prompt; sample i is drawn with seed + i, so seeds of equal prompts must lie at
        least `n` apart. The model's own end-of-sequence tokens always stop; `stop_token_ids` and `stop`
        strings come on top. A prompt and `max_tokens` must fit together into the engine's `max_model_len`.
        Raises EngineDied.
        """
        if seeds is not None and len(seeds) != len(prompts):
            raise ValueError(f"{len(seeds)} seeds for {len(prompts)} prompts")
        if not prompts:
            return []
        shared = dict(
            n=n,
            temperature=temperature,
            top_p=top_p,
            max_tokens=max_tokens,
            stop_token_ids=list(stop_token_ids),
            stop=list(stop) or None,
            detokenize=bool(stop),
            logprobs=0 if logprobs else None,
            flat_logprobs=True,
        )
        parameters = [
            SamplingParams(seed=seeds[index] if seeds is not None else None, **shared)
            for index in range(len(prompts))
        ]
        requests = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        try:
            results = self.llm.generate(requests, parameters, use_tqdm=False)
        except Exception as error:
            raise EngineDied(
                f"the sampling engine died: {type(error).__name__}: {error}".splitlines()[0]
            ) from error
        return [[_sample(output) for output in result.outputs] for result in results]

    def load_weights(self, named_tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Replace the weights by tensors under their Hugging Face names, tied ones under both names.

        The cached keys and values of the old weights are dropped. `version` names the new weights.
        """
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(named_tensors)})
        if not self.llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not drop its prefix cache: requests are still running")
        self.version = version

    def sleep(self) -> None:
        """Give the GPU memory back: weights wait in main memory, cached keys and values are dropped."""
        if self.can_sleep and not self.asleep:
            self.llm.sleep(level=1)
            self.asleep = True

    def wake(self) -> None:
        """Undo `sleep`; what torch has cached is freed first, because vLLM's allocator cannot use it."""
        if self.asleep:
            torch.cuda.empty_cache()
            self.llm.wake_up()
            self.asleep = False

    def close(self) -> None:
        """Free the engine's memory."""
        del self.llm
        gc.collect()


def _sample(output: CompletionOutput) -> Sample:
    flat = output.logprobs
    return Sample(
        token_ids=list(output.token_ids),
        logprobs=list(flat.logprobs) if flat is not None else [],
        finish_reason=output.finish_reason or "abort",
        text=output.text or None,
    )
