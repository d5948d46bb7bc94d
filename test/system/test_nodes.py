"""Nodes as processes: they start themselves, end cleanly, refuse wrong parameters, and follow their life cycle."""

from __future__ import annotations

import signal

import pytest

pytest.importorskip("rclpy")

from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from osma_monitor.msg import ClauseStatus, SafetyState

from osma_monitor.ros import topics

pytestmark = pytest.mark.ros
STATUS = topics.of_monitor(topics.STATUS)
STATE = topics.of_monitor(topics.STATE)
LONG = "steps/1000000"


def call(observer, kind, name, **fields):
    """The response of a service."""
    client = observer.node.create_client(kind, name)
    observer.until(client.service_is_ready, f"the service {name}")
    future = client.call_async(kind.Request(**fields))
    observer.until(future.done, f"the response of {name}")
    return future.result()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_all_three_end_with_zero_under_traffic(nodes, observer, tmp_path, number):
    status = observer.listen(ClauseStatus, STATUS)
    monitor = nodes.start("safety_monitor", episode_log=tmp_path / "run")
    policy = nodes.kinematic("policy")
    bridge = nodes.kinematic("bridge", tasks=[LONG], policy="chase")
    observer.until(lambda: len(status) > 50, "50 frames", 30, bridge, policy, monitor)
    assert {p.name: p.stop(number) for p in (monitor, policy, bridge)} == {
        "safety_monitor": 0,
        "kinematic_policy": 0,
        "kinematic_bridge": 0,
    }
    assert "Traceback" not in monitor.output + policy.output + bridge.output


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_monitor_ends_with_zero_fifty_times(nodes, observer, tmp_path, number):
    status = observer.listen(ClauseStatus, STATUS)
    nodes.kinematic("policy")
    bridge = nodes.kinematic(
        "bridge", tasks=[LONG], policy="chase", lockstep_participants=["policy"], silence_limit=600.0
    )
    codes = []
    for _ in range(25):
        monitor = nodes.start("safety_monitor", episode_log="")
        observer.until(lambda m=monitor: "active" in m.output, "the monitor", 30, bridge, monitor)
        seen = len(status)
        observer.until(lambda seen=seen: len(status) > seen + 20, "20 frames", 30, bridge, monitor)
        codes.append(monitor.stop(number))
        status.clear()
    assert codes == [0] * 25


@pytest.mark.parametrize(
    ("executable", "parameters", "words"),
    [
        ("safety_monitor", {"libary": "x.yaml"}, ["no parameter libary", "did you mean library"]),
        ("safety_monitor", {"stale_after": -1.0}, ["stale_after is -1.0", "expected 0.01 to 3600"]),
        ("safety_monitor", {"gate_semantics": "fuzzy"}, ["'fuzzy'", "'boolean', 'quantitative'"]),
        ("safety_monitor", {"library": "/no/such.yaml"}, ["/no/such.yaml"]),
        ("safety_monitor", {"robot": "no_such_robot"}, ["no_such_robot", "so101"]),
        ("safety_monitor", {"templates": ["navigat"]}, ["unknown template 'navigat'", "did you mean navigate"]),
        ("safety_monitor", {"suite": "so11"}, ["no suite 'so11'", "did you mean so101"]),
        ("safety_monitor", {"suite": "so101", "task": "buter"}, ["no task 'buter'", "did you mean butter"]),
        ("safety_monitor", {"extensions": ["base_sped_limit"]}, ["did you mean base_speed_limit"]),
        ("safety_monitor", {"joint_prefix": "left_"}, ["joint_prefix", "give the parameter robot"]),
        ("mujoco_bridge", {}, ["nothing to run"]),
        ("mujoco_bridge", {"tasks": ["kitchen/layout9/A/baby"]}, ["layout9"]),
        ("mujoco_bridge", {"tasks": ["a"], "lockstep_participants": ["policy", "robot"]}, ["'robot'", "'monitor'"]),
        ("policy", {}, ["give the parameter policy"]),
        ("policy", {"policy": "no_such_policy"}, ["no_such_policy", "cautious"]),
        ("command_gate", {"input": "cmd_vel"}, ["same topic"]),
        ("episode_scorer", {}, ["give the parameter folder"]),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(nodes, executable, parameters, words):
    process = nodes.start(executable, **parameters)
    assert process.wait() == 2, process.output
    said = [line for line in process.output.splitlines() if line.startswith(f"{executable}: ")]
    assert len(said) == 1 and "Traceback" not in process.output
    for word in words:
        assert word in said[0]


def test_arguments_that_rcl_refuses_are_one_line(nodes):
    import sys

    process = nodes.run([sys.executable, "-m", "osma_monitor.ros.safety_monitor", "--ros-args", "-p", "a:="], "monitor")
    assert process.wait() == 2
    assert "safety_monitor: the ROS arguments cannot be used" in process.output
    assert "Traceback" not in process.output


def test_a_parameter_file_for_another_node_is_an_error(nodes, tmp_path):
    import sys

    file = tmp_path / "p.yaml"
    file.write_text("safety_monitr:\n  ros__parameters:\n    stale_after: 1.0\n")
    command = [sys.executable, "-m", "osma_monitor.ros.safety_monitor", "--ros-args", "--params-file", str(file)]
    process = nodes.run(command, "safety_monitor")
    assert process.wait() == 2
    assert "none of them for /safety_monitor" in process.output


def test_the_life_cycle(nodes, observer, tmp_path):
    states = observer.listen(SafetyState, STATE)
    monitor = nodes.start("safety_monitor", autostart=False, episode_log=tmp_path / "run")

    def state():
        return call(observer, GetState, "safety_monitor/get_state").current_state.id

    def change(transition):
        return call(observer, ChangeState, "safety_monitor/change_state", transition=Transition(id=transition)).success

    assert state() == State.PRIMARY_STATE_UNCONFIGURED
    assert not observer.node.count_publishers(STATUS)
    assert change(Transition.TRANSITION_CONFIGURE) and state() == State.PRIMARY_STATE_INACTIVE
    assert not states
    assert change(Transition.TRANSITION_ACTIVATE) and state() == State.PRIMARY_STATE_ACTIVE
    observer.until(lambda: states, "the heartbeat", 10, monitor)
    assert states[0].state == SafetyState.UNKNOWN and list(states[0].reasons) == ["no episode runs"]
    assert change(Transition.TRANSITION_DEACTIVATE) and state() == State.PRIMARY_STATE_INACTIVE
    observer.until(lambda: not observer.node.count_publishers(STATUS), "no status publisher", 10, monitor)
    assert change(Transition.TRANSITION_ACTIVATE)
    assert change(Transition.TRANSITION_DEACTIVATE)
    assert change(Transition.TRANSITION_CLEANUP) and state() == State.PRIMARY_STATE_UNCONFIGURED
    assert change(Transition.TRANSITION_CONFIGURE)
    assert monitor.stop() == 0


@pytest.mark.parametrize("last", [Transition.TRANSITION_CLEANUP, Transition.TRANSITION_INACTIVE_SHUTDOWN])
def test_a_node_that_has_nothing_left_ends_well(nodes, observer, tmp_path, last):
    monitor = nodes.start("safety_monitor", autostart=False, episode_log=tmp_path / "run")
    for transition in (Transition.TRANSITION_CONFIGURE, last):
        request = Transition(id=transition)
        assert call(observer, ChangeState, "safety_monitor/change_state", transition=request).success
    assert monitor.stop() == 0


def test_a_library_that_is_wrong_leaves_a_managed_node_unconfigured(nodes, observer, tmp_path):
    library = tmp_path / "library.yaml"
    library.write_text("clauses: 3\n")
    monitor = nodes.start("safety_monitor", autostart=False, library=library)
    response = call(
        observer,
        ChangeState,
        "safety_monitor/change_state",
        transition=Transition(id=Transition.TRANSITION_CONFIGURE),
    )
    assert not response.success
    current = call(observer, GetState, "safety_monitor/get_state").current_state.id
    assert current == State.PRIMARY_STATE_UNCONFIGURED
    assert "library.yaml" in monitor.output
    assert monitor.stop() == 0


def test_the_heartbeat_goes_on_without_frames(nodes, observer, tmp_path):
    states = observer.listen(SafetyState, STATE)
    monitor = nodes.start("safety_monitor", episode_log="", heartbeat_period=0.05)
    observer.until(lambda: len(states) >= 10, "ten heartbeats", 10, monitor)
    numbers = [s.sequence for s in states]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert all(s.state == SafetyState.UNKNOWN and s.latched == SafetyState.OK for s in states)
