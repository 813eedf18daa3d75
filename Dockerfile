# erd with Prefect, MLflow, DVC and the drivers for PostgreSQL: one image for servers, worker, flow runs and review page.
#   docker build -t erd .
#   docker build -t erd:cuda --build-arg TORCH_INDEX=…      # the wheels for your CUDA (or, smaller, for CPUs alone)
ARG PYTHON=3.11
FROM python:${PYTHON}-slim

# The index of torch and torchvision, as PyTorch's page "Get started" gives it for a CUDA; empty: what pip finds, which
# runs on any machine's CPUs. The driver comes from the host, all else of CUDA with the wheels.
ARG TORCH_INDEX=

# git: the commit of a workspace, and DVC; libgomp: threads of torch and scikit-learn
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends git libgomp1 \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/erd
COPY constraints.txt ./
RUN if [ -n "$TORCH_INDEX" ]; then \
        pip install --no-cache-dir -c constraints.txt --index-url "$TORCH_INDEX" torch torchvision; \
    fi
COPY pyproject.toml README.md LICENSE params.yaml prefect.yaml ./
COPY deploy ./deploy
COPY erd ./erd
COPY flows ./flows
# In place: `erd init` begins a workspace with the params.yaml and prefect.yaml that stand here.
RUN pip install --no-cache-dir -c constraints.txt -e '.[postgres,dicom]' && python -m compileall -q erd flows

# Any user may run it: what is written is in /workspace and in volumes.
ENV HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    DO_NOT_TRACK=1 \
    MLFLOW_DISABLE_TELEMETRY=true \
    DVC_NO_ANALYTICS=1
RUN useradd --uid 1000 --no-create-home erd \
    && install -d -o erd /workspace /state /artifacts
USER 1000
WORKDIR /workspace
CMD ["erd", "--help"]
