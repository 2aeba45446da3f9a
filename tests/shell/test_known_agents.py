"""Agents that were added are known to whoever comes after: everything is in the database."""

import json

from tests.shell.support import manage
from tests.support.remote_agents import remote_agent


def test_known_agents_survive_a_restart(ready_env):
    env = ready_env | {"BUREAU_OUTBOUND_ALLOW": "127.0.0.0/8"}
    with remote_agent(name="Parrot") as remote:
        assert manage("agents", "add", remote.url, env=env).returncode == 0
    for _ in range(2):
        # Each brings a queue and a worker of its own, and ends them.
        done = manage("ask", "--json", "--agent", "directory", ":tool list_agents", env=env)
        assert done.returncode == 0, done.stderr
        text, data = json.loads(done.stdout)["artifacts"][0]["parts"]
        assert "parrot: Parrot (remote)" in text["text"]
        parrot = next(one for one in data["data"]["agents"] if one["id"] == "parrot")
        assert parrot["skills"][0]["examples"] == ["Repeat this"]
        # The data folder's own account is an operator's.
        assert parrot["url"] == f"{remote.url}/rpc"
