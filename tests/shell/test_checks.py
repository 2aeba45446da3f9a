"""Wrong settings are found by `manage.py check`, in a sentence each."""

import pytest

from tests.shell.support import manage

PRODUCTION = {
    "BUREAU_PRODUCTION": "true",
    "BUREAU_SECRET_KEY": "4kq8Zr2vYw7Tn5Xb9Lc3Jd6Hf1Gs0Pa8Me-Ui_RoA5bC7dE1fG3h",
    "BUREAU_ALLOWED_HOSTS": "bureau.example.org",
    "BUREAU_PUBLIC_URL": "https://bureau.example.org",
    "DATABASE_URL": "postgresql://bureau@localhost/bureau",
    "REDIS_URL": "redis://localhost:6379/0",
}


def check(env, *tags, **variables):
    arguments = ["--deploy", "--fail-level", "WARNING", *(tags or ("--tag", "bureau"))]
    return manage("check", *arguments, env=env | PRODUCTION | variables)


def test_good_production_settings_pass_all_checks(env):
    everything = ("--tag", "bureau", "--tag", "security")
    assert check(env, *everything).returncode == 0
    assert check(env, *everything, BUREAU_SECRET_KEY="short").returncode == 1


@pytest.mark.parametrize("name", ["BUREAU_SECRET_KEY", "BUREAU_ALLOWED_HOSTS", "DATABASE_URL", "REDIS_URL"])
def test_production_requires(env, name):
    found = check(env, **{name: ""})
    assert found.returncode == 1
    assert f"{name} is required when BUREAU_PRODUCTION is on." in found.stderr


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"BUREAU_ALLOW_ANONYMOUS": "true"}, "BUREAU_ALLOW_ANONYMOUS cannot be on in production."),
        ({"BUREAU_PUBLIC_URL": "http://bureau.example.org"}, "which is not encrypted."),
        ({"BUREAU_PORT": "many"}, "BUREAU_PORT: 'many' cannot be used"),
        ({"BUREAU_PROT": "1"}, "Did you mean BUREAU_PORT?"),
        ({"BUREAU_PROJECT_ROOT": "/no/such/folder"}, "BUREAU_PROJECT_ROOT: /no/such/folder is not a folder."),
        ({"BUREAU_DATA": "/dev/null/data"}, "BUREAU_DATA: /dev/null/data cannot be used: Not a directory."),
    ],
)
def test_it_says_what_is_wrong(env, variables, words):
    found = check(env, **variables)
    assert found.returncode == 1
    assert words in found.stderr
    assert "Traceback" not in found.stderr


def test_open_data_folder_and_secret_are_found(env, data):
    data.mkdir(mode=0o755)
    (data / "secret_key").write_text("x" * 60)
    (data / "secret_key").chmod(0o644)
    found = manage("check", "--tag", "bureau", env=env)
    assert found.returncode == 1
    assert "secret_key can be read by others on this machine." in found.stderr
    assert f"Run: chmod 700 {data}" in found.stderr


def test_address_open_to_others_is_doubted(env):
    found = manage("check", "--tag", "bureau", "--fail-level", "WARNING", env=env | {"BUREAU_HOST": "0.0.0.0"})
    assert found.returncode == 1
    assert "can be reached from other machines without encryption" in found.stderr


def test_anonymous_callers_are_only_for_loopback(env):
    code = "from django.conf import settings; print(settings.BUREAU_ALLOW_ANONYMOUS)"

    def allowed(**variables):
        return manage("shell", "-v", "0", "-c", code, env=env | variables).stdout.strip()

    assert allowed() == "True"
    assert allowed(BUREAU_HOST="0.0.0.0") == "False"
    assert allowed(DATABASE_URL="postgresql://localhost/x") == "False"
    assert allowed(**PRODUCTION, BUREAU_ALLOW_ANONYMOUS="true") == "False"
