"""The weekly flow against a real, temporary Prefect server: the same bytes as the bare stages, one task a member."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = ["pretrain.epochs=3", "finetune.epochs=3", "finetune.members=2"]

FLOW = f"""
import asyncio, json, sys

if __name__ == "__main__":
    from prefect.client.orchestration import get_client
    from flows.weekly import weekly

    state = weekly(batch="2026-W46", overrides={SMALL}, return_state=True)

    async def seen():
        async with get_client() as client:
            tasks = sorted(task.name for task in await client.read_task_runs())
            artifacts = sorted(artifact.key for artifact in await client.read_artifacts())
            return tasks, artifacts, (await client.read_flow_runs())[0].name

    print(json.dumps([state.type.value, *asyncio.run(seen())]))
"""


@pytest.mark.timeout(600)
def test_the_flow_shows_a_task_a_member_and_writes_the_bytes_of_the_stages(tmp_path: Path) -> None:
    script = tmp_path / "flow.py"
    script.write_text(FLOW)
    environment = os.environ | {
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    state, tasks, artifacts, name = json.loads(done.stdout.splitlines()[-1])
    assert state == "COMPLETED"
    assert name == "2026-W46"
    assert [task.rpartition("-")[0] or task for task in tasks if not task.startswith("finetune")] == [
        "evaluate",
        "ingest",
        "pretrain",
        "score",
    ]
    assert [task for task in tasks if task.startswith("finetune")] == ["finetune c=2", "finetune c=3"]
    assert artifacts == ["fine-tuning", "flagged", "summary"]

    plain = tmp_path / "plain"
    plain.mkdir()
    words = [part for setting in SMALL for part in ("--set", setting)]
    bare = [sys.executable, "-m", "erd.cli", "run", "--batch", "2026-W46", "--runner", "serial", *words]
    subprocess.run(bare, cwd=plain, check=True, capture_output=True)
    written = sorted((plain / "runs" / "2026-W46" / "members").glob("*.safetensors"))
    assert len(written) == 2
    for path in [*written, plain / "runs" / "2026-W46" / "metrics.json"]:
        assert (tmp_path / path.relative_to(plain)).read_bytes() == path.read_bytes(), path.name
