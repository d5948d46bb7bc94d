"""A client of OpenAI-compatible chat endpoints: plain HTTP with time-outs and retries, and a transcript to replay.

With ``record`` every exchange is appended to a JSON-lines file; with ``replay`` answers come from such a file and
nothing is sent. A request is known by the hash of its model, messages and settings, so that a replay answers the same
questions only.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import http.client
import json
import math
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from osma_monitor.core.errors import EXIT_ENVIRONMENT, UserError
from sim_bridge.options import checked, new_file

Message = Mapping[str, Any]

_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_MAX_ANSWER_BYTES = 4 << 20
_PIECE = 1 << 16


class ChatError(UserError):
    """The endpoint gave no answer; the message names its URL, what came back and the next step."""

    exit_code = EXIT_ENVIRONMENT


def answered(asker: object) -> bool:
    """Whether a chooser, verifier or value source has had an answer of its endpoint.

    One that never had is misconfigured: nobody there, a wrong key. That is not the policy's failure, and stops the run.
    """
    client = getattr(asker, "client", None)
    return isinstance(client, ChatClient) and client.asked > 0


def text_message(text: str, images: Sequence[bytes] = (), role: str = "user") -> Message:
    """A message of text and PNG images, in the endpoint's content-part form when there are images."""
    if not images:
        return {"role": role, "content": text}
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
    for image in images:
        url = "data:image/png;base64," + base64.b64encode(image).decode()
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return {"role": role, "content": parts}


class ChatClient:
    """Asks one model behind one endpoint.

    ``url`` is the API's base, such as http://localhost:8000/v1. ``api_key_env`` names an environment variable that
    holds the key; the key itself is never stored. ``timeout_s`` holds for the connection, for each silence, and for
    the whole answer. ``retries`` are further attempts after a failed one: a busy or broken server, a time-out, an
    answer that is cut off or is no chat completion. ``backoff_s`` is the wait before the first of them, doubled each
    time (a Retry-After header wins, up to 60 s). Redirects are not followed: they would carry the key elsewhere.
    UserError for a URL that is not http(s) or a number out of range.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key_env: str = "",
        timeout_s: float = 60.0,
        retries: int = 2,
        backoff_s: float = 1.0,
        temperature: float = 0.0,
        max_tokens: int = 1024,
        record: Path | str | None = None,
        replay: Path | str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
        except ValueError as error:
            raise UserError(f"chat endpoint {url!r}: {error}") from error
        for option, number, least in (
            ("timeout_s", timeout_s, 1e-3),
            ("retries", retries, 0),
            ("backoff_s", backoff_s, 0),
            ("max_tokens", max_tokens, 1),
        ):
            if not least <= number < math.inf:
                raise UserError(f"chat endpoint: {option} is {number!r}; expected a number of at least {least:g}")
        if replay is None and (parts.scheme not in ("http", "https") or not parts.netloc):
            raise UserError(f"chat endpoint {url!r}: expected an http or https URL, such as http://localhost:8000/v1")
        self.url, self.model = url.rstrip("/"), model
        self._key_env = api_key_env
        self._timeout, self._retries, self._backoff, self._sleep = timeout_s, retries, backoff_s, sleep
        self._settings = {"temperature": temperature, "max_tokens": max_tokens}
        self._record = new_file("record", record) if record is not None else None
        self._replay = _read_transcript(Path(replay)) if replay is not None else None
        self.asked = 0  #: questions answered
        self.retried = 0  #: failed attempts that were repeated

    @classmethod
    def of(cls, given: ChatClient | Mapping[str, Any], owner: str) -> ChatClient:
        """The client, or one of these options. UserError for ``owner`` where they are none or not enough."""
        return given if isinstance(given, ChatClient) else cls(**checked(owner, cls, given))

    def ask(self, messages: Sequence[Message]) -> str:
        """The answer's text. ChatError when all attempts fail or a replay does not know the question."""
        body = {"model": self.model, "messages": list(messages), **self._settings}
        key = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        if self._replay is not None:
            if not self._replay[key]:
                raise ChatError(
                    f"the transcript holds no answer to this question (model {self.model}, key {key[:12]}); "
                    "record it again with the same model, prompts and tasks"
                )
            answer = self._replay[key][0]
            if len(self._replay[key]) > 1:  # the same question may have been answered differently: in their order
                self._replay[key].popleft()
        else:
            answer = self._send(json.dumps(body).encode())
            if self._record is not None:
                entry = {"key": key, "model": self.model, "messages": _without_images(messages), "answer": answer}
                append_line(self._record, entry)
        self.asked += 1
        return answer

    def _send(self, body: bytes) -> str:
        headers = {"Content-Type": "application/json"}
        if self._key_env:
            key = os.environ.get(self._key_env)
            if not key:
                raise ChatError(
                    f"the environment variable {self._key_env} is not set; it should hold the endpoint's key"
                )
            headers["Authorization"] = f"Bearer {key}"
        target = f"{self.url}/chat/completions"
        wait = self._backoff
        attempt = 0
        while True:
            try:
                request = urllib.request.Request(target, body, headers)
                deadline = time.monotonic() + self._timeout
                with _OPENER.open(request, timeout=self._timeout) as response:
                    return _text_of(_body_of(response, deadline))
            except urllib.error.HTTPError as error:
                problem, again = f"HTTP {error.code} {_detail(error)}".strip(), error.code in _RETRIED
                pause = _retry_after(error.headers.get("Retry-After"), wait)
            except _NoCompletion as error:
                problem, again, pause = str(error), True, wait
            except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
                problem, again, pause = str(getattr(error, "reason", error)) or type(error).__name__, True, wait
            if not again or attempt == self._retries:
                break
            attempt += 1
            self.retried += 1
            self._sleep(pause)
            wait *= 2
        raise ChatError(
            f"{target}: no answer after {attempt + 1} attempts ({problem}); check that the server runs, serves "
            f"{self.model} and answers within {self._timeout:g} s"
        )


class _NoCompletion(Exception):
    """The server answered with something else."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None: the redirect becomes the error that its status is."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def _body_of(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """The whole body. TimeoutError past the deadline, however steadily it trickles; IncompleteRead of a part."""
    parts: list[bytes] = []
    size = 0
    while part := response.read1(_PIECE):
        parts.append(part)
        size += len(part)
        if size > _MAX_ANSWER_BYTES:
            raise _NoCompletion(f"the answer is larger than {_MAX_ANSWER_BYTES >> 20} MiB")
        if time.monotonic() > deadline:
            raise TimeoutError(f"the answer was not complete in time, after {size} bytes")
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(parts)


def _detail(error: urllib.error.HTTPError) -> str:
    """What an error's body says, as far as it comes."""
    try:
        return error.read(300).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        error.close()


def _text_of(data: bytes) -> str:
    try:
        content = json.loads(data)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise _NoCompletion(f"the answer is no chat completion: {data[:120]!r}") from error
    if isinstance(content, list):  # content parts
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _retry_after(value: str | None, default: float) -> float:
    """Seconds of a Retry-After header (a number, or a date), between 0 and 60."""
    try:
        seconds = float(value or "")
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value or "").timestamp() - time.time()
        except ValueError:
            return default
    return min(max(seconds, 0.0), 60.0) if math.isfinite(seconds) else default


def append_line(path: Path, entry: Mapping[str, Any]) -> None:
    """Append one JSON line, in one write: several workers may share the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, (json.dumps(entry) + "\n").encode())
    finally:
        os.close(handle)


def _without_images(messages: Sequence[Message]) -> list[Message]:
    """The messages with every image replaced by its hash: a transcript stays readable and small."""
    found: list[Message] = []
    for message in messages:
        content = message["content"]
        if isinstance(content, list):
            content = [
                {"type": "image", "sha256": hashlib.sha256(part["image_url"]["url"].encode()).hexdigest()}
                if part.get("type") == "image_url"
                else part
                for part in content
            ]
        found.append({**message, "content": content})
    return found


def _read_transcript(path: Path) -> dict[str, deque[str]]:
    answers: dict[str, deque[str]] = defaultdict(deque)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"{path}: the transcript cannot be read ({error.strerror})") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            answers[str(entry["key"])].append(str(entry["answer"]))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path}:{number}: no line of a transcript ({error}); expected JSON with key and answer"
            ) from error
    return answers
