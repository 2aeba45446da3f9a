"""`manage.py setup`: an up-to-date database, however many ask for it at once."""

import subprocess
import sys
import uuid

import pytest

from tests.shell.support import BASE, manage


def test_it_makes_and_fills_the_database(env):
    assert manage("setup", env=env).returncode == 0
    code = "from directory.models import Agent; print(Agent.objects.filter(slug='echo').count())"
    assert manage("shell", "-v", "0", "-c", code, env=env).stdout.strip() == "1"
    assert manage("setup", env=env).returncode == 0


@pytest.mark.both_databases
def test_it_can_be_raced(env, database_url):
    from django.db import connection

    if connection.vendor == "postgresql":
        name = f"bureau_setup_{uuid.uuid4().hex[:8]}"
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        env |= {"DATABASE_URL": database_url.rpartition("/")[0] + f"/{name}"}
    command = [sys.executable, "manage.py", "setup"]
    racers = [
        subprocess.Popen(command, cwd=BASE, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    endings = [(racer.communicate(timeout=180)[1], racer.returncode) for racer in racers]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")
    assert [status for _, status in endings] == [0, 0, 0], endings


def test_a_database_out_of_reach_is_named(env):
    result = manage("setup", env=env | {"DATABASE_URL": "postgresql://127.0.0.1:1/x"})
    assert result.returncode == 1
    assert "cannot be reached" in result.stderr
    assert result.stderr.endswith(". Check DATABASE_URL.\n")
    assert "?" not in result.stderr
    assert "Traceback" not in result.stderr
