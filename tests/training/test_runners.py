"""Where jobs are done: the same interface whoever does them, deaths told and survived, nothing left behind."""

import os
import time
from pathlib import Path

import pytest

from erd.base.errors import RunError, UserError, WorkerDied
from erd.runs.configure import settings_for
from erd.settings.schema import Run
from erd.training import devices, runners
from erd.training.runners import process

ONE = Run(workers=1)
HERE = [name for name in runners.names() if name != "ray"]  # which needs a cluster: test_ray.py


def _ends_the_first_time(mark: str) -> int:
    """Kills its process unless it has been here before."""
    if not Path(mark).exists():
        Path(mark).touch()
        os._exit(1)
    return os.getpid()


def _fails(text: str) -> None:
    raise ValueError(text)


@pytest.mark.parametrize("name", HERE)
def test_every_runner_gives_results_errors_and_all_of_them(name: str) -> None:
    with runners.of(Run(runner=name, workers=2), jobs=3) as runner:
        assert runner.submit(max, 3, 5).result() == 5
        with pytest.raises(ValueError, match="so it is"):
            runner.submit(_fails, "so it is").result()
        found = dict(runners.each(runner, pow, [(2, 1), (2, 2), (2, 3)]))
        assert found == {0: 2, 1: 4, 2: 8}
        [(_, error)] = runners.each(runner, _fails, [("again",)])
        assert isinstance(error, ValueError)


def test_a_runner_that_is_not_there_is_named_before_anything_starts() -> None:
    with pytest.raises(UserError, match=r"'run.runner' is 'procss', which is no runner: did you mean 'process'\?"):
        settings_for(runner="procss")


def test_a_death_of_a_worker_is_one_sentence() -> None:
    with runners.of(ONE, jobs=1) as runner:
        with pytest.raises(WorkerDied, match="a worker process died"):
            runner.submit(os._exit, 1).result()
        assert runner.submit(os.getpid).result() != os.getpid(), "a new try gets a new worker"


def test_a_job_whose_worker_died_is_tried_again_and_the_others_are_not_lost(tmp_path: Path) -> None:
    jobs = [(str(tmp_path / f"{number}"),) for number in range(3)]
    with runners.of(ONE, jobs=3) as runner:
        found = dict(runners.each(runner, _ends_the_first_time, jobs))
    assert all(isinstance(worker, int) for worker in found.values())
    assert len(set(found.values())) == 3, "each died once, and took a worker along"


def test_a_job_that_always_dies_is_given_up_after_some_tries() -> None:
    with runners.of(ONE, jobs=1) as runner:
        [(_, error)] = runners.each(runner, os._exit, [(1,)])
    assert isinstance(error, WorkerDied)


def test_a_stopped_run_waits_for_no_member_and_starts_none() -> None:
    runner = runners.of(ONE, jobs=1)
    with pytest.raises(KeyboardInterrupt), runner:  # noqa: PT012
        runner.submit(os.getpid).result()  # the process is up
        training = runner.submit(time.sleep, 600)
        time.sleep(0.5)
        raise KeyboardInterrupt
    with pytest.raises(RunError, match="a worker process died"):
        training.result(timeout=30)
    with pytest.raises(RunError, match="the run was stopped"):
        runner.submit(os.getpid).result()


def test_member_goes_to_its_device_and_workers_fit_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    found = [str(devices.device(Run(), member)) for member in range(4)]
    assert found == ["cuda:0", "cuda:1", "cuda:2", "cuda:0"]
    assert process.worker_count(Run(), jobs=5) == 3
    assert str(devices.device(Run(device="cpu"), 2)) == "cpu"
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr(process, "cores", lambda: 8)
    assert process.worker_count(Run(threads=3), jobs=5) == 2
    assert process.worker_count(Run(), jobs=5) == 5
    assert process.worker_count(Run(workers=2), jobs=5) == 2
