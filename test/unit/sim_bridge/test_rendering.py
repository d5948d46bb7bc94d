"""Pictures: of the simulator (where GL is there) and the drawn top view (always)."""

import os
import subprocess
import sys

import numpy as np
import pytest

from sim_bridge.kitchen.simulation import KitchenSimulation
from sim_bridge.policies.topview import TopView, png

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


def rendered(style):
    environment = {**os.environ, "MUJOCO_GL": os.environ.get("MUJOCO_GL", "egl")}
    code = RENDER.format(style=style)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    if run.returncode and any(word in run.stderr for word in ("EGL", "OSMesa", "GLError", "OpenGL")):
        pytest.skip("no EGL here: install libegl1, or set MUJOCO_GL=osmesa")
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_four_cameras_and_styles_that_look_different():
    modern, coastal = rendered("modern_1"), rendered("coastal")
    assert modern[-1] == coastal[-1] == "True" and modern[0] != coastal[0]


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
