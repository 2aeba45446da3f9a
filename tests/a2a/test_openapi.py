"""The description of HTTP+JSON: complete, true (schemathesis asks the running server), and there to be read."""

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from bureau.a2a.openapi import document
from bureau.a2a.rest_v1 import ROUTES
from directory.services import create_api_client

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# What can be asked only of a task that there is.
FOLLOWING = {"GetTask", "CancelTask", "SubscribeToTask", "CreateTaskPushNotificationConfig"}


def test_it_tells_of_every_route():
    described = {(verb.upper(), path[1:]) for path, verbs in document()["paths"].items() for verb in verbs}

    assert described == {(route.verb, route.path) for route in ROUTES}


def test_it_is_public_and_there_to_be_read(url):
    found = httpx.get(f"{url}/api/openapi.json")
    page = httpx.get(f"{url}/api/")

    assert found.json()["openapi"] == "3.1.0"
    assert page.status_code == 200
    for route in ROUTES:
        assert f"{route.verb} /{route.path}" in page.text
    assert "http://" not in page.text.replace(url, "") and "https://" not in page.text


def examples(operation):
    def decorate(test):
        quick = hypothesis_settings(
            max_examples=25,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        return quick(given(case=operation.as_strategy())(test))

    return decorate


@pytest.mark.both_databases
def test_it_does_so_for_what_came_of_a_request_too(url, worker, settings):
    """Sequences of requests, each about what the one before made, as the links of the description say."""
    settings.BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8",)
    _, key = create_api_client("schemathesis")
    seen = set()

    class Machine(schemathesis.openapi.from_dict(document()).as_state_machine()):
        def get_call_kwargs(self, case):
            headers = {"Authorization": f"Bearer {key}"}
            return {"base_url": f"{url}/a2a/echo", "headers": headers, "timeout": 90}

        def before_call(self, case):
            # By chance alone no message names an agent, task, role and part that there are; nor is a URL one.
            case.headers["A2A-Version"] = "1.0"
            for place in (case.query, case.body):
                if isinstance(place, dict):
                    place.pop("tenant", None)
            if isinstance(case.body, dict) and "url" in case.body:
                case.body |= {"url": "http://127.0.0.1:9/", "token": "", "authentication": None}
            if isinstance(case.body, dict) and isinstance(case.body.get("message"), dict):
                fitting = {"role": "ROLE_USER", "parts": [{"text": "x"}], "taskId": "", "referenceTaskIds": []}
                case.body = {"message": case.body["message"] | {"messageId": "m", **fitting}}

        def validate_response(self, response, case, **kwargs):
            if response.status_code == 200 or "already" in response.text or "has ended" in response.text:
                seen.add(case.operation.definition.raw["operationId"])
            case.validate_response(response, checks=CHECKS)

    # Which requests follow which is by chance, and so is what the server calls its tasks: until it got to where only
    # what was made before leads.
    for number in range(10):
        Machine.run(
            settings=hypothesis_settings(
                max_examples=40,
                stateful_step_count=8,
                deadline=None,
                database=None,
                derandomize=not number,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
        )
        if "SendMessage" in seen and seen & FOLLOWING:
            break
    assert "SendMessage" in seen
    assert seen & FOLLOWING


def test_the_server_does_what_it_says(url, worker):
    schema = schemathesis.openapi.from_dict(document())
    _, key = create_api_client("schemathesis")
    headers = {"Authorization": f"Bearer {key}"}

    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path == "/message:send":
            continue  # It waits for its task; what it reads is read by `message:stream`, too.

        @examples(operation)
        def ask(case):
            response = case.call(base_url=f"{url}/a2a/echo", headers=headers, timeout=90)
            case.validate_response(response, checks=CHECKS)

        ask()
