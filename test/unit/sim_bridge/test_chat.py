"""The endpoint client against a real local server."""

import json

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


@pytest.mark.parametrize("data", [b"<html>", b"{}", b'{"choices": []}', b'{"choices": [{"message": null}]}'])
def test_what_is_no_completion_is_said(endpoint, data):
    serving = endpoint.serve(lambda body, n: (200, {}, data))
    with serving as (url, _), pytest.raises(ChatError, match="no chat completion"):
        client(url)[0].ask([text_message("x")])


@pytest.mark.parametrize("url", ["localhost:8000", "file:///etc/passwd", "ftp://host/v1", ""])
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
