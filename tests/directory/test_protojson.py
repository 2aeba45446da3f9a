"""Numbers of free-form values: protobuf knows doubles only, and people write integers."""

import json

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict

from directory import wire
from directory.protojson import as_json, whole


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (9.0, "9"),
        (-9.0, "-9"),
        (9.5, "9.5"),
        (True, "true"),
        ("9.0", '"9.0"'),
        (2.0**53, "9007199254740992"),
        # Beyond, a double stands for several integers.
        (2.0**54, "1.8014398509481984e+16"),
        (1e300, "1e+300"),
        ({"a": 1.0, "b": [2.0, {"c": 3.0}], "d": None}, '{"a": 1, "b": [2, {"c": 3}], "d": null}'),
        ([[1.0], [], {}], "[[1], [], {}]"),
    ],
)
def test_whole_numbers_are_integers(value, written):
    assert json.dumps(whole(value)) == written


def test_what_a_remote_agent_says_keeps_its_integers():
    said = {"artifactId": "a", "parts": [{"data": {"count": 9}, "metadata": {"page": 1}}], "metadata": {"share": 0.5}}
    task = ParseDict({"id": "t", "contextId": "c", "status": {"state": 3}, "artifacts": [said]}, pb.Task())

    found = wire.task_from(task).artifacts[0]

    assert json.dumps([found["parts"], found["metadata"]]) == json.dumps([said["parts"], said["metadata"]])
    assert json.dumps(as_json(task.artifacts[0].parts[0].data)) == '{"count": 9}'
