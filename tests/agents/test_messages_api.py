"""The scripted server itself: as strict as the real one, and usable by hand."""

import json
import subprocess
import sys

import anthropic
import pytest

from tests.support.messages_api import Reply, running


@pytest.fixture(scope="module")
def api():
    with running() as server:
        yield server


@pytest.fixture
def client(api):
    api.reset()
    with anthropic.Anthropic(api_key="key", base_url=api.url, max_retries=0) as made:
        yield made


def say(client, text="hello", **more):
    return client.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": text}], **more)


def test_it_answers_whole_and_streamed_alike(api, client):
    api.add(Reply(text="Once upon a time there was a model.", times=2, usage={"output_tokens": 9}))
    whole = say(client)
    with client.messages.stream(model="m", max_tokens=5, messages=[{"role": "user", "content": "x"}]) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text
        assert stream.get_final_message().usage.output_tokens == whole.usage.output_tokens == 9


def test_replies_go_to_whom_they_match(api, client):
    api.add(Reply(match="never", text="no"), Reply(match="second", text="2"), Reply(text="1"))
    assert [say(client, text).content[0].text for text in ("first", "second")] == ["1", "2"]
    assert api.prompts == ["\nfirst", "\nsecond"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 529])
def test_errors_are_those_of_the_api(api, client, status):
    api.add(Reply(status=status, error="scripted", headers={"retry-after": "7"}))
    with pytest.raises(anthropic.APIStatusError) as caught:
        say(client)
    assert (caught.value.status_code, caught.value.api_message) == (status, "scripted")
    assert caught.value.response.headers["retry-after"] == "7"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"extra_body": {"temperature": 1}}, "sampling parameters"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}, "additionalProperties"),
        ({"extra_body": {"max_tokens": None}}, "max_tokens: Field required"),
    ],
)
def test_it_refuses_what_the_api_refuses(client, more, message):
    with pytest.raises(anthropic.BadRequestError, match=message):
        say(client, **more)


def test_it_can_be_started_by_hand(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"match": "hello", "text": "from the file"}]))
    command = [sys.executable, "-m", "tests.support.messages_api", "--port", "0", "--script", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().split()[-1]
        try:
            with anthropic.Anthropic(api_key="key", base_url=url) as client:
                assert say(client, "hello").content[0].text == "from the file"
                assert "scripted model" in say(client, "anything else").content[0].text
        finally:
            process.terminate()
