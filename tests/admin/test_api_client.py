import re

import pytest
from django.contrib.auth.models import Permission

from directory import admin as directory_admin
from directory.exceptions import ClientNameTaken
from directory.models import ApiClient
from directory.services import check_api_key, create_api_client

pytestmark = pytest.mark.django_db


def add(client, **fields):
    form = {"name": "nightly", "user": "", "expires_at_0": "", "expires_at_1": ""} | fields
    return client.post("/admin/directory/apiclient/add/", form, follow=True)


def test_a_new_client_gets_a_key_that_is_shown_once(as_olga, alice):
    page = add(as_olga, user=alice.pk).content.decode()
    key = re.search(r"bureau_[\w-]{30,}", page)
    assert key
    made = ApiClient.objects.get()
    assert check_api_key(key[0]) == made
    assert made.user == alice
    assert key[0] not in as_olga.get("/admin/directory/apiclient/").content.decode()
    assert key[0] not in as_olga.get(f"/admin/directory/apiclient/{made.pk}/change/").content.decode()


def test_a_name_is_taken_once(as_olga):
    create_api_client("nightly")
    assert "already exists" in add(as_olga).content.decode()
    assert ApiClient.objects.count() == 1


def test_losing_the_name_to_somebody_quicker_is_said(as_olga, monkeypatch):
    def taken(*args, **kwargs):
        raise ClientNameTaken

    monkeypatch.setattr(directory_admin, "create_api_client", taken)
    assert "An API client of that name exists already." in add(as_olga).content.decode()
    assert not ApiClient.objects.exists()


def test_changing_its_name_keeps_its_key(as_olga):
    made, key = create_api_client("nightly")
    form = {"name": "daily", "user": "", "expires_at_0": "", "expires_at_1": ""}
    as_olga.post(f"/admin/directory/apiclient/{made.pk}/change/", form)
    assert check_api_key(key).name == "daily"


def test_revoking_ends_the_key_and_tells_which_were_revoked_before(as_olga):
    made, key = create_api_client("nightly")
    form = {"action": "revoke", "_selected_action": [made.pk]}
    assert "1 key was revoked." in as_olga.post("/admin/directory/apiclient/", form, follow=True).content.decode()
    assert check_api_key(key) is None
    page = as_olga.post("/admin/directory/apiclient/", form, follow=True).content.decode()
    assert "1 key had been revoked before." in page


def test_a_client_is_never_deleted(as_olga):
    made, _ = create_api_client("nightly")
    assert as_olga.post(f"/admin/directory/apiclient/{made.pk}/delete/", {"post": "yes"}).status_code == 403
    assert ApiClient.objects.exists()


def test_it_is_good_for_what_was_chosen(as_olga, agent):
    form = {"name": "reader", "user": "", "expires_at_0": "", "expires_at_1": "", "scopes": ["read"]}
    as_olga.post("/admin/directory/apiclient/add/", form | {"agents": agent.slug})
    made = ApiClient.objects.get()
    assert (made.scopes, made.agents) == (["read"], [agent.slug])

    url = f"/admin/directory/apiclient/{made.pk}/change/"
    assert "There is no agent nobody." in as_olga.post(url, form | {"agents": "nobody"}).content.decode()
    as_olga.post(url, form | {"scopes": ["read", "cancel"], "agents": ""})
    made.refresh_from_db()
    assert (made.scopes, made.agents) == (["read", "cancel"], [])


@pytest.mark.parametrize("may_add_agents", [False, True])
def test_nobody_gives_a_program_what_they_may_not_do(may_add_agents, olga, as_olga):
    names = ["add_apiclient", "view_apiclient", *(["add_remoteagent"] if may_add_agents else [])]
    olga.is_superuser = False
    olga.save()
    olga.user_permissions.set(Permission.objects.filter(codename__in=names))
    add(as_olga, scopes=["read", "manage"])
    assert [client.scopes for client in ApiClient.objects.all()] == ([["read", "manage"]] if may_add_agents else [])
    add(as_olga, name="reader", scopes=["read"])
    assert ApiClient.objects.get(name="reader").scopes == ["read"]
