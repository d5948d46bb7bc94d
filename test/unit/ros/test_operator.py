"""What a person says wrongly, or at a bad moment, is answered and never ends the monitor."""

from types import SimpleNamespace

import pytest

pytest.importorskip("rclpy")

from osma_monitor.srv import Acknowledge, BeginEpisode, CorrectOutcome, EndEpisode

from osma_monitor.core.episode import EpisodeInfo
from osma_monitor.ros import operator as module
from osma_monitor.ros import topics
from osma_monitor.ros.operator import Operator
from osma_monitor.ros.outputs import StateLatch

pytestmark = pytest.mark.ros
VALUES = SimpleNamespace(
    max_elements=3, max_text=40, joy_begin=-1, joy_success=-1, joy_failure=-1, joy_abort=-1, joy_acknowledge=-1
)


class Node:
    """Calls services as rclpy does."""

    def __init__(self):
        self.services = {}

    def create_service(self, kind, name, handler):
        self.services[name] = lambda request: handler(request, kind.Response())


class Monitor:
    latch, values, running, log_folder, last_ended = StateLatch(), VALUES, None, None, "just ended"

    def __init__(self):
        self.begun = []

    def episode_template(self, episode_id):
        return EpisodeInfo(episode_id)

    def begin_by_hand(self, info):
        self.begun.append(info)


@pytest.fixture
def served():
    node, monitor = Node(), Monitor()
    Operator(node, monitor)
    return node.services, monitor


@pytest.mark.parametrize(
    ("topic", "request_", "field"),
    [
        (topics.BEGIN_EPISODE, BeginEpisode.Request(task="x" * 41), "task"),
        (topics.BEGIN_EPISODE, BeginEpisode.Request(tags=["x"] * 4), "tags"),
        (topics.BEGIN_EPISODE, BeginEpisode.Request(templates=["x" * 41]), "templates"),
        (topics.END_EPISODE, EndEpisode.Request(reason="x" * 41), "reason"),
        (topics.CORRECT_OUTCOME, CorrectOutcome.Request(why="x" * 41), "why"),
        (topics.ACKNOWLEDGE, Acknowledge.Request(who="x" * 41), "who"),
    ],
)
def test_requests_are_bounded_like_messages(served, topic, request_, field):
    services, monitor = served
    response = services[topic](request_)
    assert not response.success and response.message.startswith(f"{field} has") and not monitor.begun


def test_a_file_that_goes_while_it_is_corrected_ends_no_node(served, monkeypatch, tmp_path):
    services, monitor = served
    monitor.log_folder = tmp_path

    def gone(folder):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(module, "episode_files", gone)
    response = services[topics.CORRECT_OUTCOME](CorrectOutcome.Request(episode_id="e", who="Ada", why="seen"))
    assert not response.success and "FileNotFoundError" in response.message


def test_an_id_that_has_just_ended_is_not_said_to_begin(served):
    services, monitor = served
    answer = services[topics.BEGIN_EPISODE](BeginEpisode.Request(episode_id="just ended"))
    assert not answer.success and "has just ended" in answer.message and not monitor.begun
    assert services[topics.BEGIN_EPISODE](BeginEpisode.Request(episode_id="new")).success


def test_an_episode_that_runs_already_is_not_said_to_begin(served):
    services, monitor = served
    monitor.running = EpisodeInfo("e")
    response = services[topics.BEGIN_EPISODE](BeginEpisode.Request(episode_id="e"))
    assert not response.success and "runs already" in response.message and not monitor.begun
    assert services[topics.BEGIN_EPISODE](BeginEpisode.Request(episode_id="f")).success
