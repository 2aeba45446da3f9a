"""A client of a test's remote agent, found the way users find one, and something to say to it."""

from directory.calls import target_at
from directory.credentials import authorizer
from directory.discovery import discover
from directory.remote import RemoteClient
from directory.wire import Outgoing


def hello(text="hello", **fields):
    return Outgoing([{"text": text}], message_id="m-1", **fields)


async def client_of(agent, secret=None, **options):
    access = authorizer(secret, agent.url) if secret else None
    return RemoteClient(target_at(await discover(agent.url, access), access), **options)
