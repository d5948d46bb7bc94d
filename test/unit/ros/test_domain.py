import os
import socket

from osma_monitor.ros.domain import FIRST, LAST, domain_environment, reserve_domain


def test_reservations_never_meet():
    with reserve_domain() as a, reserve_domain() as b, reserve_domain() as c:
        assert len({a, b, c}) == 3
        assert all(FIRST <= d <= LAST for d in (a, b, c))


def test_a_domain_with_a_listener_is_not_given(monkeypatch):
    with reserve_domain() as domain:
        pass
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("", 7400 + 250 * domain))
        monkeypatch.setattr("random.SystemRandom.shuffle", lambda self, ids: ids.sort(key=lambda d: d != domain))
        with reserve_domain() as other:
            assert other != domain


def test_the_environment_is_a_copy_limited_to_this_machine():
    environment = domain_environment(42, {"A": "1", "ROS_LOCALHOST_ONLY": "1"})
    assert environment == {"A": "1", "ROS_DOMAIN_ID": "42", "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    assert os.environ.get("ROS_DOMAIN_ID") != "42" or domain_environment(43)["ROS_DOMAIN_ID"] == "43"
