"""The client of a2a-sdk 0.3 does one thing of each kind, and prints what it saw as JSON. Runs where that version is.

python sdk03.py CARD_BASE KEY JSONRPC|HTTP+JSON 0.3 PUSH_URL
"""

import asyncio
import json
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
)


def message(text, task_id=None):
    return Message(
        message_id=str(uuid.uuid4()), role=Role.user, parts=[Part(root=TextPart(text=text))], task_id=task_id
    )


async def failure(call):
    """The code or status of the error."""
    try:
        await call
    except Exception as error:
        return getattr(getattr(error, "error", None), "code", None) or getattr(error, "status_code", None)


async def main(base, key, binding, version, url):
    seen = {}
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=90) as http:
        card = await A2ACardResolver(http, base.rstrip("/")).get_agent_card()

        def connect(**options):
            config = ClientConfig(
                httpx_client=http, supported_transports=[binding], use_client_preference=True, **options
            )
            return ClientFactory(config).create(card)

        async def send(text, task_id=None, **options):
            async for task, _ in connect(streaming=False, **options).send_message(message(text, task_id)):
                return task

        client = connect(streaming=True)
        task = await send("Hello")
        found = await client.get_task(TaskQueryParams(id=task.id))
        seen["send"] = [task.status.state.value, found.artifacts[0].parts[0].root.text]
        seen["stream"] = [
            update.kind if update else "task" async for _, update in client.send_message(message("Hello"))
        ]
        asked = await send("ask")
        answered = await send("That one", asked.id)
        seen["ask"] = [asked.status.state.value, answered.status.state.value, asked.id == answered.id]
        lost = client.send_message(message("hold"))
        held, _ = await anext(lost)
        await lost.aclose()
        seen["resume"] = []
        async for now, update in client.resubscribe(TaskIdParams(id=held.id)):
            if not seen["resume"]:
                seen["cancel"] = (await client.cancel_task(TaskIdParams(id=held.id))).status.state.value
            seen["resume"].append(update.kind if update else "task")
            seen["resumed"] = now.status.state.value
        seen["canceledTwice"] = await failure(client.cancel_task(TaskIdParams(id=held.id)))
        seen["missing"] = await failure(client.get_task(TaskQueryParams(id="nonsense")))
        push = PushNotificationConfig(id="mine", url=url, token="t")
        await client.set_task_callback(TaskPushNotificationConfig(task_id=task.id, push_notification_config=push))
        params = GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="mine")
        made = (await client.get_task_callback(params)).push_notification_config
        seen["push"] = [made.id, made.url, made.token]
        await send("Hello", push_notification_configs=[push])
        seen["extendedCard"] = (await client.get_card()).name
    print(json.dumps(seen))


asyncio.run(main(*sys.argv[1:]))
