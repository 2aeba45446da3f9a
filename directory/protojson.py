"""From protobuf to JSON as people write it.

Protobuf keeps every number of a free-form value (`data`, `metadata`) as a double, and its converter writes 9 as 9.0.
That is the same number to JSON, but not to a caller whose field is an integer, nor to an agent that counts with it.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

# Up to here a double is exact.
LARGEST = 2**53


def as_json(message: Message) -> Any:
    """ProtoJSON of the message, with whole numbers as integers. Raises what MessageToDict does."""
    return whole(MessageToDict(message))


def whole(value: Any) -> Any:
    """The JSON value, changed in place: floats without a fraction are integers, as far as they are exact."""
    if isinstance(value, dict):
        for name, each in value.items():
            if isinstance(each, (dict, list, float)):
                value[name] = whole(each)
    elif isinstance(value, list):
        for place, each in enumerate(value):
            if isinstance(each, (dict, list, float)):
                value[place] = whole(each)
    elif isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST:
        return int(value)
    return value
