"""The reference: a2a-sdk's own server with an echo executor, on its database task store or in memory.

Served by `uvicorn tests.bench.sdk_server:app`. SDK_DATABASE_URL (a SQLAlchemy URL) chooses the database
store; without it tasks live in memory. The four events are those of every other target: submitted, working,
artifact, completed.
"""

import os

from a2a.helpers.proto_helpers import get_message_text, new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette


class Echo(AgentExecutor):
    """Answers with what it was sent."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message = context.message
        if message is None:
            raise ValueError("an echo needs a message")
        task = new_task_from_user_message(message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        await updater.add_artifact([new_text_part(get_message_text(message))], name="echo")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError("an echo is over before it can be cancelled")


def task_store() -> TaskStore:
    url = os.environ.get("SDK_DATABASE_URL")
    if not url:
        return InMemoryTaskStore()
    return DatabaseTaskStore(create_async_engine(url, pool_size=32, max_overflow=0))


def card() -> AgentCard:
    skill = AgentSkill(id="echo", name="Echo", description="Repeats the message", tags=["echo"])
    return AgentCard(
        name="echo",
        description="Repeats the message",
        version="1",
        supported_interfaces=[
            AgentInterface(url="http://127.0.0.1/", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[skill],
    )


handler = DefaultRequestHandler(agent_executor=Echo(), task_store=task_store(), agent_card=card())
app = Starlette(routes=create_jsonrpc_routes(handler, "/"))
