# docker build -t rrgkern . : torch for CUDA, vLLM, and the library with its CUDA kernels.
FROM nvidia/cuda:13.0.2-devel-ubuntu24.04 AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ python3-venv
RUN python3 -m venv /opt/build
WORKDIR /src
COPY setup.py pyproject.toml MANIFEST.in README.md LICENSE ./
COPY csrc csrc
COPY rrgkern rrgkern
COPY python python
COPY recipes recipes
ENV RRGKERN_BUILD=cuda RRGKERN_CUDA_ARCHS="80;86;89;90;100;120"
RUN /opt/build/bin/pip wheel --no-deps -w /wheels .

# Triton and torch.compile want a C compiler and Python's headers where they run.
FROM nvidia/cuda:13.0.2-base-ubuntu24.04
RUN apt-get update && apt-get install -y --no-install-recommends g++ python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/* && python3 -m venv /opt/rrgkern
COPY --from=build /wheels /wheels
# vLLM decides which torch and transformers, within the bounds of the library.
RUN /opt/rrgkern/bin/pip install --no-cache-dir "$(echo /wheels/*.whl)[gpu,serve,vllm]"
ENV PATH=/opt/rrgkern/bin:$PATH
WORKDIR /work
CMD ["rrgtrain", "doctor"]
