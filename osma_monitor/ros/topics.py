"""Names and quality of service of every topic. docs/topics.md describes them for people; a test holds both together.

Names are relative, so a namespace separates robots. ``~/`` names belong to the node that publishes them.
"""

from __future__ import annotations

from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

#: Messages that may wait for a slow reader; lock-step never has more than a few, free-running has what this allows.
DEPTH = 100


def reliable(depth: int = DEPTH) -> QoSProfile:
    """Every message arrives, in order, as long as the reader is no more than ``depth`` behind."""
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.VOLATILE,
    )


def best_effort(depth: int = DEPTH) -> QoSProfile:
    """For readers of sensors whose driver publishes best effort."""
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.VOLATILE,
    )


def latched(depth: int = 1) -> QoSProfile:
    """A reader that comes late still gets the last ``depth`` messages."""
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL,
    )


#: One event is latched: a late reader learns what runs now, not what ran before. Publishers wait for acknowledgement
#: in between.
EVENT_DEPTH = 1
#: A reader of events keeps this many that it has not handled.
EVENT_READ_DEPTH = 10

# what a robot or a simulator publishes
ODOM = "odom"
JOINT_STATES = "joint_states"
EE_POSE = "ee_pose"
GRIPPER = "gripper"
CONTACTS = "contacts"
OBJECTS = "objects"
OBJECT_SHAPES = "object_shapes"
EPISODE = "episode"
CLOCK = "/clock"
TF = "/tf"
TF_STATIC = "/tf_static"

#: Raw part -> topic that gives it.
PART_TOPICS: dict[str, str] = {
    "base": ODOM,
    "joints": JOINT_STATES,
    "ee": EE_POSE,
    "gripper": GRIPPER,
    "contacts": CONTACTS,
    "objects": OBJECTS,
}

# what a policy publishes
CMD_VEL = "cmd_vel"
JOINT_COMMAND = "joint_command"
POLICY_REPORT = "policy_report"

# what safety_monitor publishes, below its own name
MONITOR = "safety_monitor"
CLAUSES = "~/clauses"
STATUS = "~/status"
VIOLATIONS = "~/violations"
MOTION = "~/motion"
STATE = "~/state"
FRAME = "~/frame"
SUMMARY = "~/summary"
MARKERS = "~/markers"
DIAGNOSTICS = "/diagnostics"

# services of safety_monitor, and the joystick that a person holds
ACKNOWLEDGE = "~/acknowledge"
BEGIN_EPISODE = "~/begin_episode"
END_EPISODE = "~/end_episode"
CORRECT_OUTCOME = "~/correct_outcome"
TARE = "~/tare"
JOY = "joy"


def of_monitor(topic: str, node: str = MONITOR) -> str:
    """A ``~/`` topic of the monitor as another node of its namespace names it."""
    return topic.replace("~", node, 1)
