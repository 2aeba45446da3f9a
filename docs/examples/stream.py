"""Talk to an A2A agent with the reference client and print what it streams.

python docs/examples/stream.py http://127.0.0.1:8000 "Which agents are there?" [API key]
"""

import asyncio
import sys

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers import get_artifact_text, get_message_text
from a2a.types import Message, Part, Role, SendMessageRequest, TaskState


async def main(base: str, text: str, key: str = "") -> None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        card = await A2ACardResolver(http, base).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=True)).create(card)
        message = Message(message_id="m-1", role=Role.ROLE_USER, parts=[Part(text=text)])
        async for event in client.send_message(SendMessageRequest(message=message)):
            if event.HasField("artifact_update"):
                print(get_artifact_text(event.artifact_update.artifact), end="", flush=True)
            elif event.HasField("status_update"):
                status = event.status_update.status
                name = TaskState.Name(status.state).removeprefix("TASK_STATE_").lower()
                print(f"\n[{name}] {get_message_text(status.message)}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
