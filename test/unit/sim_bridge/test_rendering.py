"""Pictures: of the simulator (where GL is there) and the drawn top view (always)."""

import numpy as np
import pytest

from osma_monitor.core.errors import EXIT_ENVIRONMENT, UserError
from sim_bridge.kitchen.simulation import KitchenSimulation
from sim_bridge.policies import make_policy
from sim_bridge.policies.topview import TopView, png
from sim_bridge.policies.views import Cameras

RENDER = """
import numpy as np
from sim_bridge.kitchen.simulation import KitchenSimulation
simulation = KitchenSimulation(style={style!r})
simulation.reset("kitchen/layout0/A/human", 0)
images = [simulation.render(camera, 64, 48) for camera in ("top", "robot_left", "robot_right", "robot_wrist")]
assert all(i.shape == (48, 64, 3) and i.dtype == np.uint8 for i in images)
print(*(int(i.astype(int).sum()) for i in images), images[0].std() > 5)
simulation.close()
"""


def test_four_cameras_and_styles_that_look_different(run_rendering):
    modern, coastal = (run_rendering(RENDER.format(style=style)) for style in ("modern_1", "coastal"))
    assert modern[-1] == coastal[-1] == "True" and modern[0] != coastal[0]


LOOKED_AT = """
from sim_bridge.kitchen.simulation import KitchenSimulation
from sim_bridge.simulation import Action
ends = []
for looked_at in (False, True):
    simulation = KitchenSimulation()
    simulation.reset("kitchen/layout0/B/wine", 0)
    for step in range(30):
        if looked_at and step % 10 == 0:
            simulation.render("robot_wrist", 64, 48)
        frame = simulation.step(Action(0.6, 0.3, 0.4))
    ends.append([a.tobytes() for a in (frame.base.position, frame.joints.velocity, frame.objects.position)])
assert ends[0] == ends[1]
"""


def test_a_picture_does_not_change_the_drive(run_rendering):
    run_rendering(LOOKED_AT)


def test_the_drawn_top_view_is_the_same_every_time_and_places_things_right():
    simulation = KitchenSimulation()
    frame = simulation.reset("kitchen/layout3/F/wine", 0)
    view = TopView(simulation.task)
    image = view.draw(frame, labels=False)
    assert png(image) == png(view.draw(frame, labels=False))
    assert image.size == view.size == (346, 528)
    pixels = np.asarray(image)

    def at(x, y):
        column, row = view.pixel(x, y)
        return tuple(int(v) for v in pixels[int(row), int(column)])

    floor = at(2.5, 3.5)
    table = frame.objects.position[1]
    assert at(table[0] + 0.09, table[1]) == (140, 105, 75) != floor
    assert at(0.3, 1.0) == (150, 150, 155)  # the counter along the left wall
    start = simulation.task.start
    assert at(start.x - 0.25, start.y + 0.15) == (245, 130, 32)  # the robot


RENDERED_VIEW = """
import dataclasses
import numpy as np
from sim_bridge.kitchen.simulation import KitchenSimulation
from sim_bridge.policies import make_policy
from sim_bridge.policies.topview import TopView
from sim_bridge.policies.views import Views
from sim_bridge.simulation import episode_info

simulation = KitchenSimulation(style="coastal")
frame = simulation.reset("kitchen/layout3/F/wine", 0)
views = Views("rendered")
views.reset(episode_info(simulation.info(), "pivot"))
view = views(simulation.task)
drawn = TopView(simulation.task)
assert view.size == drawn.size and view.pixel(1.0, 2.0) == drawn.pixel(1.0, 2.0)

def pixels(v, f, robot=True):
    return np.asarray(v.draw(f, robot=robot, labels=False)).astype(int)

def at(image, x, y, half=4):
    column, row = map(int, view.pixel(x, y))
    return image[row - half : row + half, column - half : column + half]

start = simulation.task.start
with_robot, without = pixels(view, frame), pixels(view, frame, robot=False)
assert np.abs(at(with_robot, start.x, start.y) - at(without, start.x, start.y)).mean() > 20
table = frame.objects.position[1]
floor = without[int(view.pixel(2.5, 3.5)[1]), int(view.pixel(2.5, 3.5)[0])]
assert np.abs(at(without, table[0] + 0.09, table[1]) - floor).mean() > 20
moved = dataclasses.replace(frame, base=dataclasses.replace(frame.base, position=np.array([2.5, 3.5, 0.0])))
assert np.abs(at(pixels(view, moved), 2.5, 3.5) - floor).mean() > 20
assert np.array_equal(pixels(view, frame), with_robot)
assert not np.array_equal(with_robot, pixels(drawn, frame))

from unittest import mock
for name, options in (
    ("pivot", {"chooser": mock.Mock()}), ("rollout_selection", {"k": 2, "verifier": mock.Mock(unparsed=0)})
):
    policy = make_policy(name, view="rendered", **options)
    policy.reset(episode_info(simulation.info(), name))
    seen = []
    if name == "pivot":
        policy._chooser.choose = lambda points, situation, number, count: (seen.append(situation.image()), [0])[1]
        policy._chooser.profile = lambda *given: [(0.0, 100.0, 1.0)]
    else:
        from sim_bridge.policies.selection import candidate_image
        policy._verifier.choose = lambda shown, scene: (
            seen.extend(candidate_image(shown[0], scene, f).tobytes() for f in ("grid", "path", "overlay")), 0
        )[1]
    policy.act(frame)
    assert len(seen) == 3, (name, len(seen))
simulation.close()
"""


def test_policies_can_get_a_rendered_top_view(run_rendering):
    run_rendering(RENDERED_VIEW)


FOLLOWED = """
import numpy as np
from sim_bridge.kitchen import scene
from sim_bridge.kitchen.simulation import KitchenSimulation, StartJitter
from sim_bridge.policies.views import Cameras
from sim_bridge.simulation import Action, episode_info

cameras = Cameras()
for options in ({"jitter": StartJitter(), "style": "coastal"}, {"identical_shapes": True}):
    simulation = KitchenSimulation(**options)
    frame = simulation.reset("kitchen/layout1/B/wine", 4)
    cameras.reset(episode_info(simulation.info(), "learned"))
    for step in range(45):
        if step % 22 == 0:
            for camera in scene.CAMERAS:
                for size in ((64, 48), (96, 96)):
                    seen, is_ = cameras.image(frame, camera, *size), simulation.render(camera, *size)
                    assert seen.shape == (size[1], size[0], 3) and seen.dtype == np.uint8
                    assert np.array_equal(seen, is_), (options, camera, step)
        # into the table, which moves and tips: the pictures show it where it is
        frame = simulation.step(Action(0.3, 0.9, 0.2, joints=(0.4, -0.3, 0.2, 0.0, 0.5)))
    simulation.close()
"""


def test_a_policys_cameras_show_what_the_driven_simulation_would_render(run_rendering):
    """Same seed, same state, same pixels, without any access to that simulation."""
    run_rendering(FOLLOWED)


def test_where_nothing_can_be_rendered_it_is_said(monkeypatch):
    def broken(self, camera, width, height):
        raise RuntimeError("no display")

    monkeypatch.setattr(KitchenSimulation, "render", broken)
    simulation = KitchenSimulation()
    frame = simulation.reset("kitchen/layout0/B/wine", 0)
    cameras = Cameras()
    cameras.reset(simulation.info())
    with pytest.raises(UserError, match=r"camera top: .*no display.*MUJOCO_GL=egl or osmesa") as raised:
        cameras.image(frame, "top", 64, 64)
    assert raised.value.exit_code == EXIT_ENVIRONMENT


def test_a_view_that_does_not_exist_is_said():
    with pytest.raises(UserError, match="one of drawn, rendered"):
        make_policy("pivot", view="photo")
    with pytest.raises(UserError, match="one of drawn, rendered"):
        make_policy("rollout_selection", view="photo")
