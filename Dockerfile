# The GPU environment of environment.yml. Never built or run.
#   docker build -t deepseekmath .
#   docker run --rm --gpus all --shm-size 16g -v "$PWD":/deepseekmath deepseekmath \
#     python -m pipeline run configs/single-gpu.yaml --profile profiles/gpu
# Programs of models need namespaces: --security-opt seccomp=unconfined --security-opt apparmor=unconfined (docs/evaluation.md).
# As in environment.yml: python=3.13, torch==2.13.0, vllm==0.32.0, for CUDA 13: the machine needs NVIDIA driver 580 or newer.
FROM condaforge/miniforge3:latest
RUN apt-get update && apt-get install --yes --no-install-recommends make git && rm -rf /var/lib/apt/lists/*
COPY environment.yml /tmp/environment.yml
RUN conda env create --file /tmp/environment.yml && conda clean --all --yes
ENV PATH=/opt/conda/envs/deepseekmath/bin:$PATH
WORKDIR /deepseekmath
ENV PYTHONPATH=packages/mathverdict/src:packages/sealedpy/src:packages/webformulas/src
CMD ["python", "-m", "pipeline", "--help"]
