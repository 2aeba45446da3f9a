"""`manage.py seed`: the agents that come with Bureau."""

import pytest
from django.core.management import call_command

from directory.models import Agent
from tests.shell.support import manage


@pytest.mark.django_db
def test_it_can_be_repeated(capsys):
    call_command("seed")
    first = {agent.slug for agent in Agent.objects.all()}
    call_command("seed")
    assert {agent.slug for agent in Agent.objects.all()} == first
    assert "assistant" in first
    assert "echo" in first


def test_an_empty_database_is_named(env):
    result = manage("seed", env=env)
    assert result.returncode == 1
    assert "is empty." in result.stderr
