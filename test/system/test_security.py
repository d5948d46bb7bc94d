"""The SROS 2 policy: valid by its schema, and exactly as wide as the running nodes."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

pytestmark = pytest.mark.ros
POLICY = Path(__file__).parents[2] / "config" / "security" / "policy.xml"

#: sros2's policy.xsd (version 0.2.0): element -> (children, attributes that must be there, attributes that may).
SCHEMA = {
    "policy": ({"enclaves"}, {"version"}, set()),
    "enclaves": ({"enclave"}, set(), set()),
    "enclave": ({"profiles"}, {"path"}, set()),
    "profiles": ({"profile", "metadata"}, set(), {"type"}),
    "profile": ({"topics", "services", "actions"}, {"ns", "node"}, set()),
    "topics": ({"topic"}, set(), {"publish", "subscribe"}),
    "services": ({"service"}, set(), {"reply", "request"}),
    "topic": (set(), set(), set()),
    "service": (set(), set(), set()),
}


def elements():
    return ElementTree.parse(POLICY).getroot()


def test_it_follows_the_schema():
    root = elements()
    assert root.tag == "policy" and root.attrib == {"version": "0.2.0"}
    for element in root.iter():
        children, required, optional = SCHEMA[element.tag]
        assert {c.tag for c in element} <= children
        assert required <= set(element.attrib) <= required | optional
        if element.tag in ("topics", "services"):
            assert set(element.attrib.values()) == {"ALLOW"} and len(element) > 0
        if not children:
            assert element.text and element.text.strip() == element.text


def allowed(node):
    """(publish, subscribe, reply) of a node, as full names."""
    [profile] = elements().findall(f".//profile[@node='{node}']")

    def names(kind, attribute):
        found = set()
        for group in profile.findall(kind):
            if group.get(attribute) == "ALLOW":
                for item in group:
                    text = item.text.replace("~", f"/{node}", 1)
                    found.add(text if text.startswith("/") else f"/{text}")
        return found

    return names("topics", "publish"), names("topics", "subscribe"), names("services", "reply")


#: Allowed though a node started in the usual way does not have it: what only some robots or parameters bring.
SOMETIMES = {"/object_shapes", "/tf", "/tf_static", "/clock", "/joy", "/parameter_events", "/safety_monitor/tare"}
SOMETIMES |= {"/cmd_vel_raw", "/joint_command_raw", "/joint_command"}


@pytest.mark.parametrize(
    ("node", "parameters"),
    [
        ("safety_monitor", {"episode_log": ""}),
        ("command_gate", {"mode": "slow"}),
        ("episode_scorer", {"folder": "run"}),
        ("policy", {"policy": "cautious"}),
        ("mujoco_bridge", {"tasks": ["kitchen/layout0/A/baby"], "lockstep_participants": []}),
    ],
)
def test_it_is_as_wide_as_the_running_node(nodes, observer, node, parameters):
    if node == "mujoco_bridge":
        pytest.importorskip("mujoco")
    process = nodes.start(node, **parameters)
    publish, subscribe, reply = allowed(node)
    look = observer.node

    def has():
        if (node, "/") not in look.get_node_names_and_namespaces():
            return None
        return (
            {n for n, _ in look.get_publisher_names_and_types_by_node(node, "/")},
            {n for n, _ in look.get_subscriber_names_and_types_by_node(node, "/")},
            {n for n, _ in look.get_service_names_and_types_by_node(node, "/")},
        )

    def complete():
        now = has()
        return now and all(want - SOMETIMES <= got for want, got in zip((publish, subscribe, reply), now, strict=True))

    observer.until(complete, f"{node} with all that the policy allows", 30, process)
    for got, may in zip(has(), (publish, subscribe, reply), strict=True):
        assert got <= may, f"{node} uses what the policy forbids: {sorted(got - may)}"


def test_what_a_robot_file_and_a_joystick_bring_is_allowed_too(nodes, observer):
    """Transforms, shapes, buttons: subscribed only with such parameters, and within the policy."""
    process = nodes.start("safety_monitor", episode_log="", robot="turtlebot", joy_begin=0)
    publish, subscribe, reply = allowed("safety_monitor")
    look, wanted = observer.node, {"/tf", "/tf_static", "/object_shapes", "/joy"}

    def has():
        if ("safety_monitor", "/") not in look.get_node_names_and_namespaces():
            return set()
        return {n for n, _ in look.get_subscriber_names_and_types_by_node("safety_monitor", "/")}

    observer.until(lambda: wanted <= has(), f"a reader of {wanted}", 30, process)
    assert has() <= subscribe
    assert {n for n, _ in look.get_publisher_names_and_types_by_node("safety_monitor", "/")} <= publish
    assert {n for n, _ in look.get_service_names_and_types_by_node("safety_monitor", "/")} <= reply
