"""Nothing stays RUNNING that has died. A flow run beats every PREFECT_FLOWS_HEARTBEAT_FREQUENCY seconds; Prefect's
documented automation marks one CRASHED that has stopped. `prefect deploy --all` makes it, as a step of prefect.yaml.

A run that has ended stays as it ended, and one that was only cut off from the server is COMPLETED when it completes.
"""

from datetime import timedelta

from prefect.automations import Automation
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification

NAME = "erd: runs that have died are CRASHED"
FLOWS = ["weekly", "benchmark", "on-alarm", "on-crash"]  # a server may be others' too
BEAT = "prefect.flow-run.heartbeat"
ENDS = {f"prefect.flow-run.{name}" for name in ("Completed", "Failed", "Cancelled", "Crashed")}


def mark_crashed(seconds: int) -> None:
    """Have the server call a run dead that was silent for so long; said again it is another time, not a second one."""
    told = f"Not heard of for {seconds} seconds."
    wanted = Automation(
        name=NAME,
        description=f"A flow run of erd that has not been heard of for {seconds} seconds",
        trigger=EventTrigger(
            after={BEAT},
            expect={BEAT, *ENDS},
            match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
            match_related=ResourceSpecification({"prefect.resource.role": ["flow"], "prefect.resource.name": FLOWS}),
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=seconds),
        ),
        actions=[ChangeFlowRunState(name=None, state=StateType.CRASHED, message=told, force=False)],
    )
    with get_client(sync_client=True) as client:
        there = client.read_automations_by_name(NAME)
    if there:
        wanted.id = there[0].id
        wanted.update()
    else:
        wanted.create()
