"""A chat endpoint on this machine: answers from a function, real HTTP."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest


class Hang(Exception):
    """Raised by an answer function: keep the client waiting until the test is over."""


@contextmanager
def chat_server(answer):
    """``answer(body, number)`` gives the text, or (status, headers, raw bytes). Yields (url, list of requests)."""
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
