"""The parameters of safety_monitor."""

from __future__ import annotations

from osma_monitor.core.signals.raw import PARTS
from osma_monitor.ros.parameters import Parameter
from osma_monitor.ros.topics import DEPTH

PARAMETERS = (
    Parameter("autostart", bool, True, "Configure and activate without being told to."),
    # what is monitored
    Parameter("library", str, "", "Clause library (YAML); empty: the one of the package."),
    Parameter("registry", str, "", "Rules of applicability (YAML); empty: the ones of the package."),
    Parameter(
        "gate_semantics",
        str,
        "boolean",
        "Whether gates cap the depth of a violation (docs/metrics.md).",
        choices=("boolean", "quantitative"),
    ),
    Parameter("backend", str, "native", "Engine that evaluates the formulas.", choices=("native", "rtamt")),
    Parameter(
        "prediction_horizon",
        float,
        1.0,
        "s; a violation that the trend foresees within it is a WARN; 0: no prediction.",
        0.0,
        60.0,
    ),
    # frames
    Parameter("robot", str, "", "Robot file, by name or path; empty: the topics of docs/topics.md, joined by stamp."),
    Parameter(
        "frame_prefix",
        str,
        "",
        "What goes before the robot file's frames, such as left/ (map, world and frames with a leading slash stay).",
    ),
    Parameter("joint_prefix", str, "", "What goes before the robot file's joint names in messages, such as left_."),
    Parameter("obstacles", str, "", "Map of obstacles (YAML) for a robot that tracks none; needs a robot file."),
    Parameter(
        "sources",
        str,
        (),
        "Raw parts that are published each step, where no episode event says it; empty: those with a publisher.",
        choices=PARTS,
    ),
    Parameter(
        "frame_timeout", float, 5.0, "s of wall time after which a frame that lacks an input goes on.", 0.001, 3600.0
    ),
    Parameter("end_timeout", float, 2.0, "s of wall time that an END waits for the frames before it.", 0.0, 3600.0),
    Parameter(
        "stale_after", float, 0.5, "s of wall time without a frame after which the state is UNKNOWN.", 0.01, 3600.0
    ),
    Parameter(
        "clock_limit",
        float,
        0.0,
        "s that a stamp may differ from this machine's clock before it counts as foreign; 0: not checked.",
        0.0,
        1e9,
    ),
    Parameter(
        "reliability",
        str,
        "auto",
        "How inputs are read; auto follows the publishers.",
        choices=("auto", "reliable", "best_effort"),
    ),
    Parameter("depth", int, DEPTH, "Messages of one input that may wait to be read.", 1, 100_000),
    Parameter(
        "deadline",
        float,
        0.0,
        "s within which each input's next message is due (QoS deadline, counted when missed), where the robot file "
        "does not say it; 0: none.",
        0.0,
        3600.0,
    ),
    Parameter(
        "max_elements", int, 20_000, "Elements that an array of a message may have; larger ones are refused.", 1, 10**7
    ),
    Parameter(
        "max_text", int, 4096, "Characters that a text in a message may have; longer ones are refused.", 16, 10**7
    ),
    # episodes
    Parameter(
        "episode_rule",
        str,
        "auto",
        "What begins and ends an episode: events and services alone (message), or also a gap in time or the gripper's "
        "contact; auto: gap with a robot file, else message.",
        choices=("auto", "message", "gap", "gripper"),
    ),
    Parameter("gap", float, 2.0, "s without a frame that end an episode under the rule gap.", 0.01, 86400.0),
    Parameter(
        "episode_limit",
        float,
        3600.0,
        "s after which an endless episode is split under the rules gap and gripper.",
        1.0,
        86400.0,
    ),
    Parameter(
        "silence_limit",
        float,
        60.0,
        "s of wall time without a frame after which a running episode is closed as incomplete; 0: never.",
        0.0,
        86400.0,
    ),
    Parameter("task", str, "", "Task of episodes that begin without an event."),
    Parameter("suite", str, "", "Their suite."),
    Parameter("policy", str, "", "Their policy."),
    Parameter("templates", str, (), "Their mechanism templates (config/safety/registry.yaml)."),
    Parameter("tags", str, (), "Their object and capability tags."),
    Parameter("extensions", str, (), "Extension families of clauses that count beside those of the suite."),
    *(
        Parameter(f"joy_{name}", int, -1, f"Button of the topic joy that {what}; -1: none.", -1, 255)
        for name, what in (
            ("begin", "begins an episode"),
            ("success", "ends it as success"),
            ("failure", "ends it as failure"),
            ("abort", "ends it as aborted"),
            ("acknowledge", "acknowledges the latched state"),
        )
    ),
    # outputs
    Parameter(
        "episode_log",
        str,
        "auto",
        "Folder that episodes are logged into; auto: a new one below ~/.ros/osma_monitor; empty: no log.",
    ),
    Parameter(
        "log_segment",
        float,
        64.0,
        "MB after which the log of a running episode goes on in a new file; they become one at its end.",
        0.01,
        1e6,
    ),
    Parameter(
        "log_limit",
        float,
        0.0,
        "MB that the log folder may take: past it the oldest finished episodes are removed; 0: nothing is removed.",
        0.0,
        1e9,
    ),
    Parameter("heartbeat_period", float, 0.1, "s between two SafetyState messages while no frames come.", 0.01, 10.0),
    Parameter("latch_over_episodes", bool, True, "A latched state outlives its episode until it is acknowledged."),
    Parameter("markers", bool, True, "Publish markers for rviz when somebody listens."),
    Parameter(
        "frame_delay_ms",
        float,
        0.0,
        "For tests only: ms that every frame is delayed by, to show that a slow monitor changes no number.",
        0.0,
        10_000.0,
    ),
)
