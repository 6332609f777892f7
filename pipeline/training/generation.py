"""Sampling from a language model with an in-process vLLM engine: token ids in, token ids and
log-probabilities out.

One class serves rollouts (paper 4.1), step-label completions and evaluation, on CPUs and GPUs. In a DeepSpeed
rank the engine runs in the same process and takes new weights from memory. Why it is set up as it is:

- A seed per request makes a sample a function of (weights, prompt, seed), whatever else is in the batch; on a
  GPU up to rounding, because vLLM's kernels there depend on the batch's size.
- Chunked prefill is off on the CPU, because vLLM then asks seeded requests for a generator offset, which CPU
  generators lack.
- vLLM keeps its prefix cache when weights are loaded, so the cache is reset after each load: otherwise the
  next samples would use keys and values of the old weights.
- Tied weights must be loaded under both names, because vLLM on the CPU otherwise keeps its old packed copy of
  the output layer.
- A sampler whose weights come from training starts with random ones: a weight that a sync does not reach
  stays random, and `score` shows it.
- `processed_logprobs` are log-probabilities under the sampled distribution, temperature included. With
  top_p < 1 they are renormalised over the nucleus, so policy training uses top_p = 1.
- Logits are in fp32, as in training, whatever the type of the weights.
- vLLM gets the tokenizer as `load_tokenizer` reads it; its own loader has the faults of AutoTokenizer. A
  configuration lies beside it, because vLLM sleeps two seconds without one. It names a family whose
  tokenizers are read as their files say; the model's own family may change what its tokenizer does.
- Ranks that share an engine add up by NCCL. vLLM's own kernel cannot open the expandable segments of memory
  that training allocates, and ends the process.
- On the CPU ranks that share an engine speak through the process group. vLLM's shared memory has one name
  for all programs of a machine, and a killed one leaves it behind, which keeps the next from starting.
- On the CPU small cache blocks let the samples of one prompt share its prefill. The cache is no larger than
  needed, because touching memory for the first time is the slowest part of starting the engine.
"""

import gc
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pipeline.training.environment  # noqa: F401 (sets variables that torch and vLLM read when imported)

os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # whole GiB only, and it overrides the exact size given below

import torch
from vllm import LLM, CompletionOutput, RequestOutput, SamplingParams
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
from vllm.platforms import current_platform

from pipeline.core.errors import InputError
from pipeline.core.launch.section import MAX_SEQUENCES
from pipeline.core.watchdog import beat
from pipeline.training.asking import CPU_CACHE_BYTES
from pipeline.training.folder import check_whole
from pipeline.training.tokenizer import PROBES, load_tokenizer, probe_ids

CPU_BLOCK_TOKENS = 32
PREFILL_TOKENS = 8192
PLAIN_FAMILY = "olmo2"
NO_WEIGHTS = -1  # the version of a sampler that sleeps, or waits for its first weights


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
    """The sampling engine stopped working; the message is one line with the cause."""


def engine_settings(max_model_len: int) -> dict[str, object]:
    """Return settings of vLLM that samples depend on, or that a CPU needs. Raises InputError."""
    settings: dict[str, object] = {
        "hf_overrides": {"head_dtype": "float32"},
        "max_model_len": max_model_len,
        "max_num_batched_tokens": max(PREFILL_TOKENS, max_model_len),
    }
    if not current_platform.is_cpu():
        return settings
    if shutil.which("lscpu") is None:
        raise InputError("lscpu: not found; vLLM asks it for the cores of this machine: install util-linux")
    return settings | {
        "block_size": CPU_BLOCK_TOKENS,
        "enforce_eager": True,  # compiling costs 20 s at each start and small models gain little
        "compilation_config": {"custom_ops": ["all"]},
        "enable_chunked_prefill": False,
        "kv_cache_memory_bytes": CPU_CACHE_BYTES,
    }


def save_plain_tokenizer(model: str | os.PathLike[str], folder: str) -> Any:
    """Write a model's tokenizer so that vLLM reads it as `load_tokenizer` does; returns it."""
    tokenizer = load_tokenizer(model)
    tokenizer.save_pretrained(folder)
    Path(folder, "config.json").write_text(json.dumps({"model_type": PLAIN_FAMILY}))
    return tokenizer


class Generator:
    """A vLLM engine that holds one model.

    `model_folder`: a Hugging Face folder or hub id, with its tokenizer. `max_sequences`: sequences sampled at
    once. `gpu_memory`: share of a GPU's memory it may use. Where a process group exists (a DeepSpeed rank),
    each rank has its own engine, or `tensor_parallel` consecutive ranks share one and must request the same
    samples. `sleep`: let `sleep()` free GPU memory. `empty`: start without weights, until `load_weights`.
    `version` is the caller's number of the loaded weights; 0 means those of the folder. Raises InputError for
    a folder that lacks weights, or that vLLM cannot open.
    """

    def __init__(
        self,
        model_folder: str | os.PathLike[str],
        *,
        dtype: str,
        max_model_len: int,
        max_sequences: int = MAX_SEQUENCES,
        seed: int = 0,
        gpu_memory: float = 0.9,
        tensor_parallel: int = 1,
        sleep: bool = False,
        empty: bool = False,
    ) -> None:
        check_whole(model_folder)
        hosted = torch.distributed.is_available() and torch.distributed.is_initialized()
        engine = engine_settings(max_model_len)
        if current_platform.is_cpu():
            CpuCommunicator._all_group_ranks_share_shm_group_name = lambda _: False
        else:
            engine |= {"gpu_memory_utilization": gpu_memory, "enable_sleep_mode": sleep}
        self.tokenizer_folder = tempfile.TemporaryDirectory()
        tokenizer = save_plain_tokenizer(model_folder, self.tokenizer_folder.name)
        try:
            self.llm = LLM(
                model=os.fspath(model_folder),
                tokenizer=self.tokenizer_folder.name,
                dtype=dtype,
                seed=seed,
                max_num_seqs=max_sequences,
                logprobs_mode="processed_logprobs",
                disable_log_stats=True,
                use_tqdm_on_load=False,
                tensor_parallel_size=tensor_parallel,
                disable_custom_all_reduce=True,
                distributed_executor_backend="external_launcher" if hosted else None,
                load_format="dummy" if empty else "auto",
                **engine,
            )
        except Exception as error:  # a family that vLLM lacks, or has no kernel for here, raises any kind
            raise InputError(f"{model_folder}: vLLM cannot open it ({_first_line(error)})") from error
        if any(probe_ids(self.llm.get_tokenizer(), text) != probe_ids(tokenizer, text) for text in PROBES):
            raise InputError(f"{model_folder}: vLLM's tokenizer gives other ids than the model's")
        step = self.llm.llm_engine.step
        self.llm.llm_engine.step = lambda: beat() or step()
        self.version = NO_WEIGHTS if empty else 0
        self.can_sleep, self.asleep = sleep and not current_platform.is_cpu(), False

    def generate(
        self,
        prompts: Sequence[list[int]],
        *,
        n: int | Sequence[int] = 1,
        temperature: float = 1.0,
        top_p: float = 1.0,
        max_tokens: int | Sequence[int],
        seeds: Sequence[int] | None = None,
        stop_token_ids: Sequence[int] = (),
        stop: Sequence[str] = (),
        logprobs: bool = False,
    ) -> list[list[Sample]]:
        """`n` samples of up to `max_tokens` (of all prompts, or a number for each) in the order of prompts.

        Temperature 0 is greedy and needs `n` = 1.

        `seeds`: one for each prompt; sample i is drawn with seed + i, so seeds of equal prompts must differ
        by at least `n`. The model's end-of-sequence tokens, `stop_token_ids` and `stop` strings end a sample.
        A prompt plus `max_tokens` must fit into `max_model_len`. Raises EngineDied.
        """
        if self.version == NO_WEIGHTS:
            raise RuntimeError("the sampler has no weights: it sleeps, or waits for its first")
        if seeds is not None and len(seeds) != len(prompts):
            raise ValueError(f"{len(seeds)} seeds for {len(prompts)} prompts")
        if not prompts:
            return []
        shared = dict(
            temperature=temperature,
            top_p=top_p,
            stop_token_ids=list(stop_token_ids),
            stop=list(stop) or None,
            detokenize=bool(stop),
            logprobs=0 if logprobs else None,
            flat_logprobs=True,
        )
        numbers, longest = ([v] * len(prompts) if isinstance(v, int) else v for v in (n, max_tokens))
        parameters = [
            SamplingParams(n=number, max_tokens=room, seed=seed, **shared)
            for number, room, seed in zip(numbers, longest, seeds or [None] * len(prompts), strict=True)
        ]
        requests = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        results = self._run(requests, parameters)
        return [[_sample(output) for output in result.outputs] for result in results]

    def score(self, tokens: list[int]) -> list[float]:
        """Return the log-probability of each token but the first, given those before. Raises EngineDied."""
        parameters = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
        (result,) = self._run([{"prompt_token_ids": tokens}], [parameters])
        pairs = zip(tokens[1:], result.prompt_logprobs[1:], strict=True)
        return [entry[token].logprob for token, entry in pairs]

    def _run(self, requests: list[Any], parameters: list[SamplingParams]) -> list[RequestOutput]:
        try:
            return self.llm.generate(requests, parameters, use_tqdm=False)
        except Exception as error:
            raise EngineDied(f"the sampling engine died: {_first_line(error)}") from error

    def load_weights(self, named_tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Replace the weights by tensors under their Hugging Face names, tied ones under both names, and
        drop the keys and values cached from the old ones. `version` numbers the new weights.
        """
        if self.asleep:
            torch.cuda.empty_cache()  # vLLM's allocator cannot use what torch has cached
            self.llm.wake_up()
            self.asleep = False
        if current_platform.is_cpu():
            self.llm.collective_rpc(_forget_packed_experts)
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": named_tensors})
        if current_platform.is_cpu():
            self.llm.collective_rpc(_restore_packed_experts)
        if not self.llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not drop its prefix cache: requests are still running")
        self.version = version

    def sleep(self) -> None:
        """Free the GPU memory; weights, cached keys and values are lost. `load_weights` ends it."""
        if self.can_sleep and not self.asleep:
            self.llm.sleep(level=2)
            self.asleep, self.version = True, NO_WEIGHTS

    def close(self) -> None:
        """Free the engine's memory."""
        del self.llm
        gc.collect()


def _expert_methods(worker: Any) -> list[Any]:
    methods = (getattr(module, "quant_method", None) for module in worker.model_runner.get_model().modules())
    return [method for method in methods if hasattr(method, "moe_kernel")]


def _forget_packed_experts(worker: Any) -> None:
    """Let vLLM pack the experts' weights again, which it does on a CPU only where it has no kernel yet."""
    for method in _expert_methods(worker):
        method.former_kernel, method.moe_kernel = method.moe_kernel, None


def _restore_packed_experts(worker: Any) -> None:
    """Give layers that no weights came for their kernels back."""
    for method in _expert_methods(worker):
        method.moe_kernel = method.moe_kernel or method.former_kernel


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _sample(output: CompletionOutput) -> Sample:
    flat = output.logprobs
    return Sample(
        token_ids=list(output.token_ids),
        logprobs=list(flat.logprobs) if flat is not None else [],
        finish_reason=output.finish_reason or "abort",
        text=output.text or None,
    )
