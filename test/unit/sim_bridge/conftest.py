"""A chat endpoint on this machine: answers from a function, real HTTP. And code run where GL draws."""

import functools
import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest


class Hang(Exception):
    """Raised by an answer function: keep the client waiting until the test is over."""


@contextmanager
def chat_server(answer):
    """Yields (url, list of requests).

    ``answer(body, number)`` gives the text, or (status, headers, raw bytes), or a function that gets the handler and an
    event (set when the test is over) and writes what it likes.
    """
    requests, over = [], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append({"path": self.path, "headers": dict(self.headers), "body": body})
            try:
                reply = answer(body, len(requests))
            except Hang:
                over.wait()
                return
            if callable(reply):
                with suppress(OSError):
                    reply(self, over)
                return
            status, headers, data = 200, {}, b""
            if isinstance(reply, tuple):
                status, headers, data = reply
            else:
                data = json.dumps({"choices": [{"message": {"role": "assistant", "content": reply}}]}).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def texts(body):
    """All text of a request, in order."""
    found = []
    for message in body["messages"]:
        content = message["content"]
        found += [content] if isinstance(content, str) else [p["text"] for p in content if p["type"] == "text"]
    return "\n".join(found)


def images(body):
    """Number of images of a request."""
    return sum(
        p["type"] == "image_url" for m in body["messages"] if isinstance(m["content"], list) for p in m["content"]
    )


@pytest.fixture
def endpoint():
    """serve(answer) -> context manager, Hang to be raised by answers, texts(body) and images(body) of a request."""
    return SimpleNamespace(serve=chat_server, Hang=Hang, texts=texts, images=images)


PROBE = """
import mujoco
with mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 8, 8) as renderer:
    renderer.render()
"""


@functools.cache
def renderer():
    """What draws here, as MUJOCO_GL names it; the first of those that can."""
    for name in (os.environ["MUJOCO_GL"],) if "MUJOCO_GL" in os.environ else ("egl", "osmesa"):
        if subprocess.run([sys.executable, "-c", PROBE], capture_output=True, env=with_gl(name)).returncode == 0:
            return name
    return None


def with_gl(name):
    return {**os.environ, "MUJOCO_GL": name}


def _run_rendering(code):
    if renderer() is None:
        assert not os.environ.get("CI"), "CI installs EGL and OSMesa, and neither draws"
        pytest.skip("nothing draws here: install libegl1 or libosmesa6")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=with_gl(renderer()))
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@pytest.fixture
def run_rendering():
    """run_rendering(code) runs it in a process of its own, with a GL that draws here, and gives the words it prints."""
    return _run_rendering
