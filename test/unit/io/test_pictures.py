"""Camera pictures nearest to a violation are kept with it."""

from __future__ import annotations

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from bag_examples import STEP_NS, Recorded, config, episode, header, message, write_bag

from osma_monitor.cli.main import main
from osma_monitor.io.bag.pictures import keep_pictures, png
from osma_monitor.io.bag.source import score_bag
from osma_monitor.io.errors import InputError
from osma_monitor.io.store import file_stem


def with_cameras() -> list[Recorded]:
    recorded = episode()
    for i in range(60):
        stamp = 1_000_000_000 + i * STEP_NS + 7_000_000  # never at a step's own stamp
        raw = message(
            "sensor_msgs/msg/Image",
            header=header(stamp, "camera"),
            height=4,
            width=5,
            encoding="bgr8",
            is_bigendian=0,
            step=16,
            data=np.full((4, 16), i, np.uint8).reshape(-1),
        )
        packed = message(
            "sensor_msgs/msg/CompressedImage",
            header=header(stamp, "camera"),
            format="jpeg",
            data=np.frombuffer(b"picture %03d" % i, np.uint8),
        )
        recorded += [Recorded("/front", 10**18 + stamp, raw), Recorded("/wrist", 10**18 + stamp, packed)]
    return sorted(recorded, key=lambda r: r.received_ns)


def test_the_nearest_picture_of_every_camera_is_kept(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", with_cameras())
    records = list(score_bag(bag, config()))
    broken = [c for c in records[0].clauses if c.first_violation_step is not None]
    files = keep_pictures(bag, records, tmp_path / "pictures")
    assert broken and len(files) == 2 * len(broken) and all(f.parent == tmp_path / "pictures" for f in files)
    for clause in broken:
        step = clause.first_violation_step
        assert step is not None
        (front,) = (f for f in files if file_stem(clause.clause) in f.name and f.suffix == ".png")
        (wrist,) = (f for f in files if file_stem(clause.clause) in f.name and f.suffix == ".jpg")
        assert (matplotlib.image.imread(front)[:, :, 0] * 255 == step).all()
        assert wrist.read_bytes() == b"picture %03d" % step
    assert len(keep_pictures(bag, records, tmp_path / "one", ["/wrist"])) == len(broken)
    with pytest.raises(InputError, match="no pictures of '/back'; its image topics: /front, /wrist"):
        keep_pictures(bag, records, tmp_path / "none", ["/back"])


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_written_png_files_read_back(tmp_path: Path, channels: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (7, 9, channels)).astype(np.uint8)
    (tmp_path / "a.png").write_bytes(png(image))
    read = matplotlib.image.imread(tmp_path / "a.png")
    assert np.array_equal(np.round(read * 255).astype(np.uint8).reshape(image.shape), image)


def test_export_keeps_pictures_when_asked(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", with_cameras())
    assert main(["export", str(bag), "--out", str(tmp_path / "out"), "--pictures"]) == 0
    assert list((tmp_path / "out").glob("*.mcap")) and list((tmp_path / "out").glob("*.jpg"))
    assert main(["export", str(bag), "--out", str(tmp_path / "plain")]) == 0
    assert not list((tmp_path / "plain").glob("*.jpg"))
