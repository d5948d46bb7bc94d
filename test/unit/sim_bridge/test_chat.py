"""The endpoint client against a real local server."""

import email.utils
import json
import os
import socket
import time

import pytest

from osma_monitor.core.errors import UserError
from sim_bridge.policies.chat import ChatClient, ChatError, text_message


def client(url, **options):
    waits = []
    made = ChatClient(url, "tiny", sleep=waits.append, **options)
    return made, waits


def test_an_answer_comes_back_and_the_request_is_openai_compatible(endpoint):
    with endpoint.serve(lambda body, n: "42") as (url, requests):
        asked, _ = client(url, temperature=0.0, max_tokens=50)
        assert asked.ask([text_message("how many?", [b"png"])]) == "42"
    request = requests[0]
    assert request["path"] == "/v1/chat/completions"
    assert request["body"]["model"] == "tiny" and request["body"]["temperature"] == 0.0
    parts = request["body"]["messages"][0]["content"]
    assert parts[0] == {"type": "text", "text": "how many?"}
    assert parts[1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert "Authorization" not in request["headers"]


def test_busy_servers_are_asked_again_as_they_say(endpoint):
    replies = {1: (503, {}, b"busy"), 2: (429, {"Retry-After": "7"}, b"")}
    with endpoint.serve(lambda body, n: replies.get(n, "done")) as (url, requests):
        asked, waits = client(url, retries=3, backoff_s=0.5)
        assert asked.ask([text_message("x")]) == "done"
        assert waits == [0.5, 7.0] and asked.retried == 2 and len(requests) == 3


def test_a_refusal_is_not_repeated_and_names_url_status_and_text(endpoint):
    with endpoint.serve(lambda body, n: (401, {}, b"no such key")) as (url, requests):
        asked, waits = client(url)
        with pytest.raises(ChatError, match=r"/v1/chat/completions.*HTTP 401 no such key.*tiny"):
            asked.ask([text_message("x")])
        assert len(requests) == 1 and waits == []


def test_a_server_that_stays_silent_times_out(endpoint):
    def hang(body, n):
        raise endpoint.Hang

    with endpoint.serve(hang) as (url, requests):
        asked, waits = client(url, timeout_s=0.1, retries=1)
        with pytest.raises(ChatError, match=r"after 2 attempts.*within 0.1 s"):
            asked.ask([text_message("x")])
        assert len(requests) == 2 and waits == [1.0]


def test_nobody_there(endpoint):
    with endpoint.serve(lambda body, n: "") as (url, _):
        pass
    asked, waits = client(url, retries=2)
    with pytest.raises(ChatError, match="after 3 attempts"):
        asked.ask([text_message("x")])
    assert waits == [1.0, 2.0]


NO_COMPLETIONS = [b"<html>", b"{}", b'{"choices": []}', b'{"choices": [{"message": null}]}', b"[" * 100_000, b"\xff"]


@pytest.mark.parametrize("data", NO_COMPLETIONS)
def test_what_is_no_completion_is_asked_again_then_said(endpoint, data):
    with endpoint.serve(lambda body, n: (200, {}, data)) as (url, requests):
        asked, waits = client(url, retries=1)
        with pytest.raises(ChatError, match=r"after 2 attempts.*no chat completion"):
            asked.ask([text_message("x")])
        assert len(requests) == 2 and waits == [1.0]


def headed(handler, length):
    handler.send_response(200)
    handler.send_header("Content-Length", str(length))
    handler.end_headers()


def trickle(handler, over):
    """A body that comes steadily, one byte at a time, and so slowly that it is never complete."""
    headed(handler, 10_000)
    while not over.wait(0.02):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def cut_off(handler, over):
    headed(handler, 10_000)
    handler.wfile.write(b'{"choices": [{"message": {"content": "hal')


def cut_off_chunk(handler, over):
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"400\r\n{")


def reset(handler, over):
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    handler.connection.close()


def nonsense(handler, over):
    handler.wfile.write(b"this is no HTTP\r\n\r\n")


def silent(handler, over):
    over.wait()


def silent_in_the_body(handler, over):
    headed(handler, 10_000)
    handler.wfile.write(b"{")
    handler.wfile.flush()
    over.wait()


def enormous(handler, over):
    headed(handler, 5 << 20)
    handler.wfile.write(b" " * (5 << 20))


FAILURES = {
    "500": (500, {}, b"oh no"),
    "429": (429, {"Retry-After": "2"}, b"slow down"),
    "broken JSON": (200, {}, b'{"choices": [{'),
    "no completion": (200, {}, b'{"error": "busy"}'),
    **{f.__name__: f for f in (trickle, cut_off, cut_off_chunk, reset, nonsense, silent, silent_in_the_body, enormous)},
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_server_that_fails_twice_and_then_answers(endpoint, name):
    def answer(body, number):
        return FAILURES[name] if number <= 2 else "here I am"

    with endpoint.serve(answer) as (url, requests):
        waited_for = name in ("trickle", "silent", "silent_in_the_body")
        asked, waits = client(url, timeout_s=0.8 if waited_for else 60.0, backoff_s=0.25)
        assert asked.ask([text_message("x")]) == "here I am"
        assert len(requests) == 3 and asked.retried == 2 and asked.asked == 1
        assert waits == ([2.0, 2.0] if name == "429" else [0.25, 0.5])
        assert requests[0]["body"] == requests[2]["body"]


def test_a_trickling_answer_ends_at_the_time_limit(endpoint):
    with endpoint.serve(lambda body, number: trickle) as (url, _):
        asked, _ = client(url, timeout_s=0.3, retries=0)
        started = time.monotonic()
        with pytest.raises(ChatError, match=r"after 1 attempts.*not complete in time, after \d+ bytes"):
            asked.ask([text_message("x")])
        assert time.monotonic() - started < 5.0


@pytest.mark.parametrize(
    ("given", "waits"),
    [
        ("0", [0.0]),
        ("1.5", [1.5]),
        ("100000", [60.0]),
        ("-3", [0.0]),
        ("nan", [1.0]),
        ("soon", [1.0]),
        ("", [1.0]),
        ("Mon, 30 Nov 1999 10:00:00 GMT", [0.0]),
    ],
)
def test_what_retry_after_may_say(endpoint, given, waits):
    with endpoint.serve(lambda body, n: (429, {"Retry-After": given}, b"") if n == 1 else "ok") as (url, _):
        asked, waited = client(url)
        assert asked.ask([text_message("x")]) == "ok" and waited == waits


def test_retry_after_may_be_a_date(endpoint):
    soon = email.utils.formatdate(time.time() + 30, usegmt=True)
    with endpoint.serve(lambda body, n: (503, {"Retry-After": soon}, b"") if n == 1 else "ok") as (url, _):
        asked, waited = client(url)
        assert asked.ask([text_message("x")]) == "ok" and 20 < waited[0] <= 30


def test_a_redirect_is_not_followed_with_the_key(endpoint, monkeypatch):
    monkeypatch.setenv("TEST_ENDPOINT_KEY", "s3cret")
    with endpoint.serve(lambda body, n: "elsewhere") as (other, there):
        reply = (302, {"Location": other + "/chat/completions"}, b"")
        with endpoint.serve(lambda body, n: reply) as (url, requests):
            asked, _ = client(url, api_key_env="TEST_ENDPOINT_KEY")
            with pytest.raises(ChatError, match="HTTP 302"):
                asked.ask([text_message("x")])
        assert len(requests) == 1 and there == []


@pytest.mark.parametrize(
    ("option", "value"),
    [("timeout_s", 0), ("timeout_s", float("nan")), ("retries", -1), ("backoff_s", -0.1), ("max_tokens", 0)],
)
def test_numbers_out_of_range_are_named(option, value):
    with pytest.raises(UserError, match=f"{option} is {value!r}"):
        ChatClient("http://localhost:1/v1", "tiny", **{option: value})


def test_a_transcript_of_retries_holds_the_answers_alone(endpoint, tmp_path):
    path = tmp_path / "t.jsonl"
    with endpoint.serve(lambda body, n: (500, {}, b"") if n % 2 else f"answer {n}") as (url, _):
        asked, _ = client(url, record=path)
        assert [asked.ask([text_message(q)]) for q in "ab"] == ["answer 2", "answer 4"]
    assert len(path.read_text().splitlines()) == 2
    replayed = ChatClient("", "tiny", replay=path)
    assert [replayed.ask([text_message(q)]) for q in "ba"] == ["answer 4", "answer 2"] and replayed.retried == 0
    assert os.stat(path).st_mode & 0o777 in (0o644, 0o600, 0o640, 0o664)


@pytest.mark.parametrize("url", ["localhost:8000", "file:///etc/passwd", "ftp://host/v1", "", "http:///v1"])
def test_only_http_urls(url):
    with pytest.raises(UserError, match="expected an http or https URL"):
        ChatClient(url, "tiny")


def test_transcript_replays_without_server_and_keeps_no_key(endpoint, tmp_path, monkeypatch):
    path = tmp_path / "talk" / "transcript.jsonl"
    monkeypatch.setenv("TEST_ENDPOINT_KEY", "s3cret")
    with endpoint.serve(lambda body, n: f"answer {n}") as (url, requests):
        asked, _ = client(url, record=path, api_key_env="TEST_ENDPOINT_KEY")
        questions = [[text_message("a", [b"image"])], [text_message("b")], [text_message("b")]]
        answers = [asked.ask(q) for q in questions]
        assert requests[0]["headers"]["Authorization"] == "Bearer s3cret"
    text = path.read_text()
    assert "s3cret" not in text and "base64" not in text
    assert [json.loads(line)["answer"] for line in text.splitlines()] == answers
    replayed = ChatClient("", "tiny", replay=path)
    assert [replayed.ask(q) for q in questions] == answers == ["answer 1", "answer 2", "answer 3"]
    with pytest.raises(ChatError, match="holds no answer to this question"):
        replayed.ask([text_message("c")])
    with pytest.raises(ChatError, match="holds no answer"):
        ChatClient("", "other", replay=path).ask(questions[0])


def test_a_missing_key_and_a_broken_transcript_are_named(endpoint, tmp_path):
    with endpoint.serve(lambda body, n: "x") as (url, requests):
        with pytest.raises(ChatError, match="NO_SUCH_KEY_HERE is not set"):
            client(url, api_key_env="NO_SUCH_KEY_HERE")[0].ask([text_message("x")])
        assert requests == []
    path = tmp_path / "t.jsonl"
    path.write_text('{"key": "k", "answer": "a"}\nnonsense\n')
    with pytest.raises(UserError, match=r"t\.jsonl:2"):
        ChatClient("", "tiny", replay=path)
    with pytest.raises(UserError, match="cannot be read"):
        ChatClient("", "tiny", replay=tmp_path / "absent")
