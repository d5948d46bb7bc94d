"""Learned policies: small ONNX models, written here byte by byte, drive; wrong files are named."""

import importlib.util
import struct
from dataclasses import replace

import numpy as np
import pytest
import yaml

from osma_monitor.core.errors import MissingDependencyError, UserError
from sim_bridge.kitchen import scene
from sim_bridge.kitchen.simulation import KitchenSimulation
from sim_bridge.policies import make_policy
from sim_bridge.policies.learned import LearnedPolicy
from sim_bridge.policies.model_inputs import ImageInput, ModelInputs, read_description
from sim_bridge.policies.views import Cameras
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


def value_info(name, shape, kind=1):
    dims = b"".join(field(1, field(1, d)) for d in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


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
    seen = policy.observe(frame)["observation"][0]
    # at the fridge, facing the wall (-y): the sink lies to the robot's left
    np.testing.assert_allclose(seen[:4], [0.0, 2.05, 1.0, 0.0], atol=1e-5)
    np.testing.assert_allclose(seen[4:7], 0.0, atol=1e-6)
    np.testing.assert_allclose(seen[7:9], [0.0, 1.23], atol=2e-3)
    assert seen[9] == pytest.approx(frame.objects.distance[0]) and seen[10] == 1.0 and seen[11] == 0.0
    empty = simulation.reset(TASK, 0)
    policy.reset(simulation.info())
    np.testing.assert_allclose(policy.observe(empty)["observation"][0][7:11], [0, 0, 4, 0])


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


WORDS = ["<pad>", "<unknown>", "navigate", "safely", "to", "the", "sink", "while", "avoiding", "obstacles", "."]
IMAGE = (32, 24)  #: width, height


def write_vla(folder, n_pred=4, **changes):
    """A model of state, image, tokens, mask and embedding; every one of them scales the speed to the goal.

    actions = (state . w) * mean(embedding) * mean(image) * sum(table[tokens] * mask), table 0.5 for "safely", else 0.1
    """
    weights = np.zeros((4, 3 * n_pred), dtype=np.float32)
    for k in range(n_pred):
        weights[0, 3 * k], weights[1, 3 * k + 1], weights[3, 3 * k + 2] = 1.0, 1.0, 1.0
    table = np.full(len(WORDS), 0.1, dtype=np.float32)
    table[WORDS.index("safely")] = 0.5
    width, height = IMAGE
    nodes = [
        node("MatMul", ["state", "w"], ["y"]),
        node("Reshape", ["y", "s"], ["a"]),
        *(
            part
            for name, given in (("e", "language"), ("i", "image"), ("t", "said"))
            for part in (
                node("ReduceSum" if name == "t" else "ReduceMean", [given], [f"{name}1"]),
                node("Reshape", [f"{name}1", "one"], [name]),
            )
        ),
        node("Mul", ["a", "e"], ["ae"]),
        node("Mul", ["ae", "i"], ["aei"]),
        node("Mul", ["aei", "t"], ["actions"]),
        node("Identity", ["i"], ["brightness"]),
    ]
    nodes = [node("Gather", ["table", "tokens"], ["words"]), node("Mul", ["words", "mask"], ["said"]), *nodes]
    graph = (
        b"".join(field(1, n) for n in nodes)
        + field(2, "policy")
        + field(5, tensor("w", weights))
        + field(5, tensor("table", table))
        + field(5, tensor("s", np.array([1, n_pred, 3], dtype=np.int64)))
        + field(5, tensor("one", np.array([1, 1, 1], dtype=np.int64)))
        + field(11, value_info("state", [1, 4]))
        + field(11, value_info("image", [1, 3, height, width]))
        + field(11, value_info("tokens", [1, 12], 7))
        + field(11, value_info("mask", [1, 12]))
        + field(11, value_info("language", [1, 2]))
        + field(12, value_info("brightness", [1, 1, 1]))
        + field(12, value_info("actions", [1, n_pred, 3]))
    )
    (folder / "vla.onnx").write_bytes(field(1, 8) + field(7, graph) + field(8, field(2, 13)))
    (folder / "words.txt").write_text("\n".join(WORDS) + "\n")
    np.savez(folder / "conditions.npz", **{f"c{k}": np.full(2, 1.0 + k, dtype=np.float32) for k in range(5)})
    described = {
        "model": "vla.onnx",
        "output": "actions",
        "n_exec": 3,
        "inputs": {
            "language": {"instruction": "embedding", "file": "conditions.npz"},
            "state": {"state": ["goal"]},
            "image": {"camera": "robot_left", "width": width, "height": height},
            "tokens": {"instruction": "tokens", "length": 12},
            "mask": {"instruction": "mask", "length": 12, "dtype": "float32"},
        },
        "tokenizer": {"vocabulary": "words.txt", "unknown": 1, "padding": 0},
    }
    described.update(changes)
    path = folder / "vla.yaml"
    path.write_text(yaml.safe_dump({k: v for k, v in described.items() if v is not None}, sort_keys=False))
    return path


@pytest.fixture
def grey(monkeypatch):
    """Cameras that see an even half grey: no GL is needed."""
    seen = []

    def image(self, frame, camera, width, height):
        seen.append(camera)
        return np.full((height, width, 3), 127.5).astype(np.uint8)

    monkeypatch.setattr(Cameras, "image", image)
    return seen


@onnx
def test_a_model_of_state_image_and_instruction_gets_all_of_them(tmp_path, grey):
    policy = LearnedPolicy(write_vla(tmp_path))
    simulation = KitchenSimulation(condition="c1")
    frame = simulation.reset(TASK, 0)
    policy.reset(simulation.info())
    inputs = policy.observe(frame)
    assert {n: (a.shape, a.dtype.name) for n, a in inputs.items()} == {
        "language": ((1, 2), "float32"),
        "state": ((1, 4), "float32"),
        "image": ((1, 3, 24, 32), "float32"),
        "tokens": ((1, 12), "int64"),
        "mask": ((1, 12), "float32"),
    }
    said = "navigate safely to the sink while avoiding obstacles ."
    assert inputs["tokens"][0].tolist() == [WORDS.index(w) for w in said.split()] + [0] * 3
    assert inputs["mask"][0].tolist() == [1.0] * 9 + [0.0] * 3
    assert inputs["language"].tolist() == [[2.0, 2.0]]
    action = policy.act(frame)
    # 0.1 for eight words, 0.5 for one, embedding 2, grey 127 / 255
    gain = (8 * 0.1 + 0.5) * 2.0 * 127 / 255
    np.testing.assert_allclose((action.vx, action.vy), gain * np.array([0.0, 2.05]), atol=1e-4)
    assert grey == ["robot_left", "robot_left"]


@onnx
@pytest.mark.parametrize(("condition", "words", "embedding"), [("c0", 0.1 * 5, 1.0), ("c1", 0.1 * 8 + 0.5, 2.0)])
def test_the_condition_reaches_the_model(tmp_path, grey, condition, words, embedding):
    """The episode's own condition, or that of the policy's option, which the record then names."""
    path = write_vla(tmp_path)
    speeds = []
    for simulation, option in ((KitchenSimulation(condition=condition), None), (KitchenSimulation(), condition)):
        policy = LearnedPolicy(path, condition=option)
        frame = simulation.reset(TASK, 0)
        policy.reset(simulation.info())
        speeds.append(policy.act(frame).vy)
        assert policy.requested == ({} if option is None else {"condition": option})
    assert speeds == pytest.approx([words * embedding * 127 / 255 * 2.05] * 2, rel=1e-4)


@onnx
def test_a_vision_language_model_drives(tmp_path, grey):
    policy = make_policy("learned", path=write_vla(tmp_path))
    frames, outcome = drive(KitchenSimulation(), policy, TASK, 0)
    assert outcome.status == "success"
    assert policy.queries == -(-(len(frames) - 1) // 3) == len(grey)  # a picture a question, none between


@onnx
def test_it_sees_the_kitchen(tmp_path, run_rendering):
    """With real pictures: the model's brightness is that of what the driven simulation renders."""
    path = write_vla(tmp_path, output="brightness", action="joints", n_exec=None)
    code = f"""
import numpy as np
from sim_bridge.kitchen.simulation import KitchenSimulation, StartJitter
from sim_bridge.policies.learned import LearnedPolicy
from sim_bridge.simulation import Action
policy = LearnedPolicy({str(path)!r})
simulation = KitchenSimulation(jitter=StartJitter(), style="scandinavian")
frame = simulation.reset("kitchen/layout1/B/vase", 2)
policy.reset(simulation.info())
seen = []
for step in range(30):
    (brightness,) = policy.act(frame).joints
    picture = simulation.render("robot_left", 32, 24)
    assert abs(brightness - picture.mean() / 255) < 1e-5, (step, brightness, picture.mean() / 255)
    seen.append(brightness)
    frame = simulation.step(Action(0.5, 0.2, 1.0))
assert len(set(seen)) > 10
"""
    run_rendering(code)


def test_images_as_a_model_wants_them():
    picture = np.zeros((2, 3, 3), dtype=np.uint8)
    picture[0, 1] = (255, 51, 0)
    plain = ImageInput(camera="top", width=3, height=2).array(picture)
    assert plain.shape == (1, 3, 2, 3) and plain.dtype == np.float32 and plain.flags["C_CONTIGUOUS"]
    assert plain[0, :, 0, 1].tolist() == pytest.approx([1.0, 0.2, 0.0])
    raw = ImageInput(camera="top", width=3, height=2, layout="hwc", dtype="uint8").array(picture)
    assert raw.dtype == np.uint8 and np.array_equal(raw[0], picture)
    scaled = ImageInput(camera="top", width=3, height=2, mean=(0.5, 0.5, 0.5), std=(0.25, 0.5, 1.0)).array(picture)
    assert scaled[0, :, 0, 1].tolist() == pytest.approx([2.0, -0.6, -0.5])
    for camera in scene.CAMERAS:
        assert ImageInput(camera=camera).width == 224


def tokens_of(tmp_path, length, condition="c0", **tokenizer):
    path = write_vla(tmp_path, tokenizer={"vocabulary": "words.txt", **tokenizer})
    data = yaml.safe_load(path.read_text())
    data["inputs"] = {name: {**spec, "length": length} for name, spec in data["inputs"].items() if "length" in spec}
    (tmp_path / "plain.onnx").write_bytes(b"")
    path.write_text(yaml.safe_dump(data))
    inputs = ModelInputs(read_description(path), tmp_path)
    simulation = KitchenSimulation(condition=condition)
    frame = simulation.reset(TASK, 0)
    inputs.reset(simulation.info())
    arrays = inputs.arrays(frame)
    return arrays["tokens"][0].tolist(), arrays["mask"][0].tolist()


def test_tokens_are_started_ended_padded_and_cut(tmp_path):
    # navigate to the sink .
    assert tokens_of(tmp_path, 7) == ([2, 4, 5, 6, 10, 0, 0], [1, 1, 1, 1, 1, 0, 0])
    assert tokens_of(tmp_path, 8, start=20, end=21, padding=9) == ([20, 2, 4, 5, 6, 10, 21, 9], [1] * 7 + [0])
    assert tokens_of(tmp_path, 4, start=20, end=21) == ([20, 2, 4, 21], [1] * 4)
    assert tokens_of(tmp_path, 3) == ([2, 4, 5], [1] * 3)
    inline = {"vocabulary": {"navigate": 5, "to": 6}, "unknown": 3}
    assert tokens_of(tmp_path, 5, **inline) == ([5, 6, 3, 3, 3], [1] * 5)
    with pytest.raises(UserError, match=r"no word 'the' of 'Navigate to the sink\.'"):
        tokens_of(tmp_path, 5, vocabulary={"navigate": 5, "to": 6})


@pytest.mark.skipif(importlib.util.find_spec("tokenizers") is None, reason="needs the package tokenizers")
def test_a_tokenizer_json(tmp_path):
    import tokenizers

    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"Navigate": 7, "to": 8, "[UNK]": 1}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    got = tokens_of(tmp_path, 6, vocabulary=None, file="tokenizer.json")
    assert got == ([7, 8, 1, 1, 1, 0], [1] * 5 + [0])
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer\.json: is no tokenizer\.json"):
        tokens_of(tmp_path, 6, vocabulary=None, file="tokenizer.json")


def test_a_tokenizer_json_without_its_package_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(MissingDependencyError, match="pip install tokenizers"):
        tokens_of(tmp_path, 6, vocabulary=None, file="tokenizer.json")


@onnx
def test_an_embedding_of_the_very_instruction_wins_over_its_condition(tmp_path, grey):
    path = write_vla(tmp_path)
    simulation = KitchenSimulation(condition="c1")
    frame = simulation.reset(TASK, 0)

    def seen():
        policy = LearnedPolicy(path)
        policy.reset(simulation.info())
        return policy.observe(frame)["language"][0].tolist()

    np.savez(tmp_path / "conditions.npz", **{"c1": [1.0, 2.0], simulation.info().instruction: [7.0, 8.0]})
    assert seen() == [7.0, 8.0]
    np.savez(tmp_path / "conditions.npz", c0=[1.0, 2.0])
    with pytest.raises(
        UserError, match=r"conditions\.npz: no embedding for 'Navigate safely.*condition 'c1'; it has c0"
    ):
        seen()
    own_words = LearnedPolicy(path)
    np.savez(tmp_path / "conditions.npz", c1=[1.0, 2.0])
    with pytest.raises(UserError, match=r"no embedding for 'Fetch the sink\.', which is that of no condition"):
        own_words.reset(replace(simulation.info(), instruction="Fetch the sink."))
    rows = np.arange(10.0).reshape(5, 2)
    np.save(tmp_path / "rows.npy", rows)
    data = yaml.safe_load(path.read_text())
    data["inputs"]["language"]["file"] = "rows.npy"
    path.write_text(yaml.safe_dump(data))
    assert seen() == [2.0, 3.0]
    np.save(tmp_path / "rows.npy", rows[:4])
    with pytest.raises(UserError, match=r"shape \(4, 2\), expected one row for each of c0"):
        seen()


@pytest.mark.parametrize("content", ["object", "text", "nonsense", "empty"])
def test_embeddings_are_never_unpickled(tmp_path, content):
    path = write_vla(tmp_path)
    file = tmp_path / "conditions.npz"
    if content == "object":
        np.savez(file, c1=np.array([{"a": 1}], dtype=object))
    elif content == "text":
        np.savez(file, c1=np.array(["word"]))
    else:
        file.write_bytes(b"PK\x03\x04 nonsense" if content == "nonsense" else b"")
    with pytest.raises(UserError, match=r"conditions\.npz"):
        LearnedPolicy(path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (("inputs", "state"), {"state": ["smell"]}, r"vla\.yaml:\d+: inputs\.state.*smell: choose from goal"),
        (("inputs", "state"), {"states": ["goal"]}, r"inputs\.state.*required"),
        (("inputs", "image", "camera"), "roof", r"inputs\.image\.camera.*'top'.*roof"),
        (("inputs", "image", "width"), 0, r"vla\.yaml:\d+: inputs\.image\.width: .*greater than or equal to 1"),
        (("inputs", "image", "std"), [1.0, 0.0, 1.0], "std needs numbers over 0"),
        (("inputs", "tokens", "length"), "long", r"vla\.yaml:\d+: inputs\.tokens\.length: .*integer"),
        (("tokenizer",), None, "an input of tokens needs a tokenizer"),
        (("tokenizer",), {"unknown": 1}, "needs either vocabulary or file"),
        (("n_exec",), 0, "greater than or equal to 1"),
        (("wheels",), 4, "wheels"),
        (("inputs",), {}, "at least 1"),
        (("tokenizer", "vocabulary"), "absent.txt", r"absent\.txt: the vocabulary cannot be read"),
        (("model",), "absent.onnx", r"absent\.onnx: no such model file"),
        (("inputs", "language", "file"), "absent.npz", r"absent\.npz"),
    ],
)
def test_descriptions_are_checked(tmp_path, key, value, message):
    path = write_vla(tmp_path)
    data = yaml.safe_load(path.read_text())
    at = data
    for name in key[:-1]:
        at = at[name]
    if value is None:
        del at[key[-1]]
    else:
        at[key[-1]] = value
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(UserError, match=message):
        LearnedPolicy(path)


@onnx
def test_inputs_and_outputs_that_the_model_does_not_have_are_named(tmp_path):
    path = write_vla(tmp_path)
    data = yaml.safe_load(path.read_text())
    data["inputs"]["mood"] = {"state": ["time"]}
    del data["inputs"]["mask"]
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(UserError, match=r"takes the inputs state, image, tokens, mask, language; described are .*mood"):
        LearnedPolicy(path)
    with pytest.raises(UserError, match=r"takes the inputs state, .*; described are observation\. Name each"):
        LearnedPolicy(tmp_path / "vla.onnx")
    with pytest.raises(UserError, match="no output 'plan'; it gives brightness, actions"):
        LearnedPolicy(write_vla(tmp_path, output="plan"))
    with pytest.raises(UserError, match="names its inputs itself"):
        LearnedPolicy(path, observations=["goal"])


@onnx
def test_a_wrong_input_is_named_with_its_shape(tmp_path, grey):
    path = write_vla(tmp_path)
    data = yaml.safe_load(path.read_text())
    data["inputs"]["tokens"]["length"] = 5
    path.write_text(yaml.safe_dump(data))
    policy = LearnedPolicy(path)
    simulation = KitchenSimulation()
    frame = simulation.reset(TASK, 0)
    policy.reset(simulation.info())
    with pytest.raises(UserError, match=r"vla\.onnx: the model does not take .*tokens \(1, 5\) int64"):
        policy.act(frame)


@onnx
def test_pictures_come_from_the_kitchen_alone(tmp_path):
    policy = LearnedPolicy(write_vla(tmp_path))
    simulation = KitchenSimulation()
    simulation.reset(TASK, 0)
    with pytest.raises(UserError, match="'libero_goal/3' is no kitchen task"):
        policy.reset(replace(simulation.info(), task="libero_goal/3"))


needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch (extra `learned`)")


@needs_torch
def test_torchscript_takes_state_image_and_instruction(tmp_path, grey):
    import torch

    class Model(torch.nn.Module):
        def forward(self, language, state, image, tokens, mask):
            gain = language.mean() * image.mean() * (0.1 * (tokens > 0) + 0.4 * (tokens == 3)).sum()
            move = torch.stack([state[:, 0], state[:, 1], state[:, 3]], dim=1) * gain
            return {"actions": move.unsqueeze(1).repeat(1, 4, 1), "seen": image.mean() + mask.sum()}

    script = torch.jit.script(Model())
    simulation = KitchenSimulation()
    frame = simulation.reset(TASK, 0)

    def act(path):
        policy = LearnedPolicy(path)
        policy.reset(simulation.info())
        return policy.act(frame)

    by_onnx = act(write_vla(tmp_path))
    path = write_vla(tmp_path, model="vla.pt", output=None)
    script.save(str(tmp_path / "vla.pt"))
    assert act(path).vy == pytest.approx(by_onnx.vy, rel=1e-4)
    # by name where the model has the names, whatever the file's order; in the file's order where it has not
    data = yaml.safe_load(path.read_text())
    data["inputs"] = dict(sorted(data["inputs"].items()))
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    assert act(path).vy == pytest.approx(by_onnx.vy, rel=1e-4)
    order = ("language", "state", "image", "tokens", "mask")
    data["inputs"] = {f"input_{i}": data["inputs"][name] for i, name in enumerate(order)}
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    assert act(path).vy == pytest.approx(by_onnx.vy, rel=1e-4)
    with pytest.raises(UserError, match="no output 'absent'; it gives actions, seen"):
        act(write_vla(tmp_path, model="vla.pt", output="absent"))


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
