"""Learned policies: a small ONNX model, written here byte by byte, drives; wrong files are named."""

import importlib.util
import struct

import numpy as np
import pytest

from osma_monitor.core.errors import MissingDependencyError, UserError
from sim_bridge.kitchen.simulation import KitchenSimulation
from sim_bridge.policies import make_policy
from sim_bridge.policies.learned import LearnedPolicy
from sim_bridge.rollout import drive

TASK = "kitchen/layout0/B/none"
onnx = pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="needs onnxruntime")


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, value):
    """A protobuf field: an integer, text, or the bytes of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name, array):
    array = np.asarray(array)
    kind = {"f": 1, "i": 7}[array.dtype.kind]
    data = array.astype("<f4" if kind == 1 else "<i8").tobytes()
    return b"".join(field(1, d) for d in array.shape) + field(2, kind) + field(8, name) + field(9, data)


def value_info(name, shape):
    dims = b"".join(field(1, field(1, d)) for d in shape)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))


def node(op, inputs, outputs):
    return b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(4, op)


def write_model(path, n_in, n_pred, gain=1.0):
    """observation (1, n) -> actions (1, n_pred, 3): drive at ``gain`` times the goal's offset, turn by its sine."""
    weights = np.zeros((n_in, 3 * n_pred), dtype=np.float32)
    for k in range(n_pred):
        weights[0, 3 * k], weights[1, 3 * k + 1], weights[3, 3 * k + 2] = gain, gain, 1.0
    graph = (
        field(1, node("MatMul", ["x", "w"], ["y"]))
        + field(1, node("Reshape", ["y", "s"], ["a"]))
        + field(2, "policy")
        + field(5, tensor("w", weights))
        + field(5, tensor("s", np.array([1, n_pred, 3], dtype=np.int64)))
        + field(11, value_info("x", [1, n_in]))
        + field(12, value_info("a", [1, n_pred, 3]))
    )
    path.write_bytes(field(1, 8) + field(7, graph) + field(8, field(2, 13)))
    assert struct.calcsize("f") == 4
    return path


@onnx
def test_an_onnx_model_drives_to_the_goal(tmp_path):
    policy = make_policy("learned", path=write_model(tmp_path / "p.onnx", 11, 8))
    frames, outcome = drive(KitchenSimulation(), policy, TASK, 0)
    assert outcome.status == "success"
    assert policy.queries == -(-(len(frames) - 1) // 8)  # whole chunks


@onnx
@pytest.mark.parametrize("n_exec", [1, 3])
def test_part_of_a_chunk_is_executed_before_the_next_query(tmp_path, n_exec):
    policy = LearnedPolicy(write_model(tmp_path / "p.onnx", 11, 8), n_exec=n_exec)
    frames, _ = drive(KitchenSimulation(), policy, TASK, 0)
    assert policy.queries == -(-(len(frames) - 1) // n_exec)


@onnx
def test_the_observation_is_in_the_base_frame(tmp_path):
    policy = LearnedPolicy(
        write_model(tmp_path / "p.onnx", 12, 1), observations=("goal", "velocity", "obstacle", "time")
    )
    simulation = KitchenSimulation()
    frame = simulation.reset("kitchen/layout0/B/vase", 0)
    policy.reset(simulation.info())
    policy.act(frame)
    seen = policy.observe(frame)[0]
    # at the fridge, facing the wall (-y): the sink lies to the robot's left
    np.testing.assert_allclose(seen[:4], [0.0, 2.05, 1.0, 0.0], atol=1e-5)
    np.testing.assert_allclose(seen[4:7], 0.0, atol=1e-6)
    np.testing.assert_allclose(seen[7:9], [0.0, 1.23], atol=2e-3)
    assert seen[9] == pytest.approx(frame.objects.distance[0]) and seen[10] == 1.0 and seen[11] == 0.0
    empty = simulation.reset(TASK, 0)
    policy.reset(simulation.info())
    np.testing.assert_allclose(policy.observe(empty)[0][7:11], [0, 0, 4, 0])


@onnx
def test_models_of_another_shape_are_named(tmp_path):
    simulation = KitchenSimulation()
    frame = simulation.reset(TASK, 0)
    wrong_input = LearnedPolicy(write_model(tmp_path / "a.onnx", 5, 4))
    wrong_input.reset(simulation.info())
    with pytest.raises(UserError, match=r"a\.onnx.*\(1, 11\)"):
        wrong_input.act(frame)
    short = LearnedPolicy(write_model(tmp_path / "b.onnx", 11, 4), n_exec=5)
    short.reset(simulation.info())
    with pytest.raises(UserError, match="n_exec = 5, but the model predicts 4"):
        short.act(frame)
    broken = tmp_path / "c.onnx"
    broken.write_bytes(b"not a model")
    with pytest.raises(UserError, match=r"c\.onnx: is no ONNX model"):
        LearnedPolicy(broken)


def test_files_and_options_are_checked(tmp_path):
    with pytest.raises(UserError, match="no such model file"):
        LearnedPolicy(tmp_path / "absent.onnx")
    pickle = tmp_path / "weights.pkl"
    pickle.write_bytes(b"")
    with pytest.raises(UserError, match=r"expected a model that ends in \.onnx"):
        LearnedPolicy(pickle)
    with pytest.raises(UserError, match="choose from goal"):
        LearnedPolicy(pickle, observations=("smell",))
    with pytest.raises(UserError, match="choose base or joints"):
        LearnedPolicy(pickle, action="words")
    with pytest.raises(UserError, match="n_exec = 0"):
        LearnedPolicy(pickle, n_exec=0)


def test_torchscript(tmp_path):
    path = tmp_path / "p.pt"
    if importlib.util.find_spec("torch") is None:
        path.write_bytes(b"")
        with pytest.raises(MissingDependencyError, match=r"osma-monitor\[learned\]"):
            LearnedPolicy(path)
        return
    import torch

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.stack([x[:, 0], x[:, 1], x[:, 3]], dim=1).unsqueeze(1)

    torch.jit.script(Model()).save(str(path))
    _, outcome = drive(KitchenSimulation(), LearnedPolicy(path), TASK, 0)
    assert outcome.status == "success"
