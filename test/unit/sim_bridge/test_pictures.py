"""Pictures of recorded drives: made from records alone."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from osma_monitor.core.errors import UserError
from osma_monitor.io.configuration import monitor_config
from osma_monitor.io.store import EpisodeWriter
from sim_bridge import pictures
from sim_bridge.kitchen.tasks import parse_task
from sim_bridge.policies.topview import TopView
from sim_bridge.rollout import Job, PolicySpec, Setup, run

RED, ORANGE = (200, 0, 0), (245, 130, 32)


@functools.cache
def record_of(task, policy="shortest_path", **options):
    setup = Setup(monitor_config, host_options=dict(options))
    return next(iter(run([Job(task, PolicySpec(policy), 0)], setup)))


def share(image, color):
    return float((np.asarray(image) == color).all(axis=2).mean())


def test_the_way_and_the_contacts_of_a_drive():
    touching = record_of("kitchen/layout0/A/wooden_crate")
    assert np.nansum(touching.signals["obstacle_contact"]) > 0
    image = pictures.drive_picture(touching, scale=64.0)
    task = parse_task(touching.info.task)
    view = TopView(task)
    assert image.size == view.size
    assert share(image, RED) > 0 and share(image, ORANGE) > 0
    at = np.flatnonzero(touching.signals["obstacle_contact"] > 0.5)[0]
    column, row = view.pixel(touching.signals["base_x"][at], touching.signals["base_y"][at])
    assert np.asarray(image)[int(row), int(column)].tolist() == list(RED)
    careful = record_of("kitchen/layout0/A/wooden_crate", "cautious")
    assert np.nansum(careful.signals["obstacle_contact"]) == 0
    assert share(pictures.drive_picture(careful), RED) == 0.0


@pytest.mark.parametrize("task", ["kitchen/layout1/F/wine", "kitchen/layout0/B/none"])
def test_the_scene_is_that_of_the_first_frame(task):
    """Table, person and obstacle stand where the frames have them; identical shapes are drawn as such."""
    from sim_bridge.kitchen.simulation import KitchenSimulation

    simulation = KitchenSimulation()
    seen = simulation.reset(task, 0)
    made = pictures._first_frame(parse_task(task), np.array([1.0, 2.0, 0.5]), 1)
    assert (made.objects.id, made.objects.category, made.objects.role) == (
        seen.objects.id,
        seen.objects.category,
        seen.objects.role,
    )
    np.testing.assert_allclose(made.objects.position, seen.objects.position, atol=0.01)
    np.testing.assert_allclose(np.abs(made.objects.orientation), np.abs(seen.objects.orientation), atol=0.01)


def test_a_drive_with_unknown_poses_and_one_without_any():
    record = record_of("kitchen/layout0/B/bag")
    signals = dict(record.signals)
    gone = signals["base_x"].copy()
    gone[5:20] = np.nan
    assert pictures.drive_picture(replace(record, signals={**signals, "base_x": gone}))
    lost = {**signals, "base_x": np.full_like(gone, np.nan)}
    with pytest.raises(UserError, match="holds no base pose"):
        pictures.drive_picture(replace(record, signals=lost))
    with pytest.raises(UserError, match="pictures are of kitchen drives, this is 'libero_goal'"):
        pictures.drive_picture(replace(record, info=replace(record.info, suite="libero_goal")))


def test_a_run_becomes_a_folder_of_pictures(tmp_path, capsys):
    record = record_of("kitchen/layout0/B/bag")
    written = (
        record,
        replace(record, info=replace(record.info, episode_id="b", seed=1, policy="../../evil")),
        replace(record, info=replace(record.info, episode_id="c", suite="so101", task="so101/pick_cube")),
    )
    for one in written:
        with EpisodeWriter(tmp_path / "run", one.info) as writer:
            writer.finish(one)
    assert pictures.main([str(tmp_path / "run"), "--out", str(tmp_path / "out" / "deep")]) == 0
    names = sorted(p.name for p in (tmp_path / "out" / "deep").iterdir())
    assert names == ["______evil.kitchen.layout0.B.bag.s1.png", "shortest_path.kitchen.layout0.B.bag.s0.png"]
    assert Image.open(tmp_path / "out" / "deep" / names[1]).format == "PNG"
    assert "2 pictures" in capsys.readouterr().out
    again = tmp_path / "again"
    for number in (1, 2):
        run_again = tmp_path / f"run{number}"
        with EpisodeWriter(run_again, record.info) as writer:
            writer.finish(record)
    assert pictures.main([str(tmp_path / "run1"), str(tmp_path / "run2"), "--out", str(again)]) == 0
    stem = "shortest_path.kitchen.layout0.B.bag.s0"
    assert sorted(p.name for p in again.iterdir()) == [f"{stem}.2.png", f"{stem}.png"]
    (tmp_path / "file").write_text("")
    assert pictures.main([str(tmp_path / "run"), "--out", str(tmp_path / "file")]) == 2
    assert "choose a folder that can be written" in capsys.readouterr().err
    assert pictures.main([str(tmp_path / "absent"), "--out", str(tmp_path / "out")]) == 2
    assert "absent" in capsys.readouterr().err


RENDERED = """
import numpy as np
from osma_monitor.io.configuration import monitor_config
from sim_bridge.pictures import drive_picture
from sim_bridge.policies.views import Cameras
from sim_bridge.rollout import Job, PolicySpec, Setup, run
setup = Setup(monitor_config, host_options={"style": "coastal"})
record = next(iter(run([Job("kitchen/layout0/B/bag", PolicySpec("shortest_path"), 0)], setup)))
rendered, drawn = drive_picture(record, Cameras()), drive_picture(record)
assert rendered.size == drawn.size
floor = np.asarray(rendered)[40, 300].astype(float)
assert abs(floor - np.asarray(drawn)[40, 300]).max() > 3
orange = (np.asarray(rendered) == (245, 130, 32)).all(axis=2)
assert orange.sum() > 100
"""


def test_over_what_the_simulator_renders(run_rendering):
    run_rendering(RENDERED)
