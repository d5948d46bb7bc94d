"""Frames of LeRobot videos nearest to a violation are kept with it."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bag_examples import config
from lerobot_examples import FPS, make_v21, make_v30

from osma_monitor.cli.main import main
from osma_monitor.io.sources import open_source

CAMERA = "observation.images.front"
LENGTHS, FIRST = [40, 30], 17
FIELDS = """
columns: {joints: {position: observation.state, effort: observation.effort}}
info: {templates: [pnp_into_container]}
"""


def film(path: Path, levels: list[int]) -> None:
    """A video whose frame k is grey of levels[k]."""
    av = pytest.importorskip("av")
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        stream.bit_rate = 4_000_000
        for level in levels:
            frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), level, np.uint8), format="rgb24")
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def levels(episode: int) -> list[int]:
    return [20 + 90 * episode + 4 * k for k in range(LENGTHS[episode])]


def calm_until(path: Path, first: int) -> None:
    """No effort before step ``first`` (of episode 0, five later in each further one)."""
    for file in path.glob("data/*/*.parquet"):
        table = pq.read_table(file)
        calm = table["frame_index"].to_numpy() < first + 5 * table["episode_index"].to_numpy()
        name = "observation.effort"
        effort = np.stack(table[name].to_numpy())
        effort[calm] = 0.0
        values = pa.FixedSizeListArray.from_arrays(pa.array(effort.reshape(-1)), effort.shape[1])
        pq.write_table(table.set_column(table.column_names.index(name), name, values), file)


def data_set(path: Path, version: str) -> Path:
    if version == "v2.1":
        make_v21(path, LENGTHS)
        calm_until(path, FIRST)
        for e in range(2):
            film(path / f"videos/chunk-000/{CAMERA}/episode_{e:06d}.mp4", levels(e))
        return path
    make_v30(path, LENGTHS)
    calm_until(path, FIRST)
    film(path / f"videos/{CAMERA}/chunk-000/file-000.mp4", levels(0) + levels(1))
    meta = path / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(meta)
    for key, values in {"chunk_index": [0, 0], "file_index": [0, 0], "from_timestamp": [0.0, LENGTHS[0] / FPS]}.items():
        table = table.append_column(f"videos/{CAMERA}/{key}", pa.array(values))
    pq.write_table(table, meta)
    return path


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_the_nearest_frame_of_every_violation_is_kept(tmp_path: Path, version: str) -> None:
    pytest.importorskip("av")
    data = data_set(tmp_path / "data", version)
    (tmp_path / "fields.yaml").write_text(FIELDS)
    fields = str(tmp_path / "fields.yaml")
    out = tmp_path / "out"
    assert main(["export", str(data), "--map", fields, "-o", str(out), "--to", "csv", "--pictures"]) == 0
    violated = [
        (int(r.info.attributes["episode_index"]), c.clause, c.first_violation_step)
        for r in open_source(data, config(), fields)
        for c in r.clauses
        if c.first_violation_step is not None
    ]
    assert [(e, step) for e, _, step in violated] == [(0, FIRST), (1, FIRST + 5)]
    assert len(list(out.glob("*.png"))) == len(violated)
    for episode, clause, step in violated:
        (file,) = out.glob(f"*{episode:06d}*{clause}*.png")
        assert abs(matplotlib.image.imread(file).mean() * 255 - levels(episode)[step]) < 2.0


def test_videos_that_are_missing_or_broken_are_a_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("av")
    data = data_set(tmp_path / "data", "v2.1")
    first, second = sorted(data.glob("videos/*/*/*.mp4"))
    first.unlink()
    second.write_bytes(b"no video")
    (tmp_path / "fields.yaml").write_text(FIELDS)
    options = ["--map", str(tmp_path / "fields.yaml"), "-o", str(tmp_path / "out"), "--to", "csv", "--pictures"]
    assert main(["export", str(data), *options]) == 2
    shown = capsys.readouterr().err
    assert shown.count("not readable as a video") == 2 and first.name in shown and second.name in shown
    assert len(list((tmp_path / "out").glob("*.csv"))) == 2


def test_without_the_package_the_extra_is_named_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    data = make_v21(tmp_path / "data", LENGTHS)
    assert main(["export", str(data), "-o", str(tmp_path / "out"), "--pictures"]) == 3
    assert "osma-monitor[video]" in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []
