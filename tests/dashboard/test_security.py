import pytest
from django.test import AsyncClient, RequestFactory
from django.views.defaults import bad_request, permission_denied, server_error

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["/", "/login/", "/nothing/", "/admin/login/"])
def test_pages_allow_nothing_inline_and_nothing_from_elsewhere(as_alice, path):
    policy = as_alice.get(path).headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


async def test_the_policy_is_there_for_asynchronous_views_too(valkey, transactional_db):
    answer = await AsyncClient().get("/missions/00000000-0000-0000-0000-000000000000/stream/")
    assert answer.status_code == 401
    assert "Content-Security-Policy" in answer.headers


@pytest.mark.parametrize("path", ["/", "/missions/new/", "/agents/", "/agents/assistant/", "/add-agent/", "/memory/"])
def test_no_page_has_inline_scripts_or_styles(as_olga, agent, path):
    page = as_olga.get(path).content.decode()
    assert "<script>" not in page
    assert "<style" not in page
    assert " style=" not in page
    assert " onclick" not in page


def test_pages_are_not_kept_by_browsers_or_proxies(as_alice, agent):
    assert "no-store" in as_alice.get("/").headers["Cache-Control"]


def test_error_pages_have_the_style_of_the_others(as_alice):
    page = as_alice.get("/nothing/")
    assert page.status_code == 404
    assert "Nothing to see here" in page.content.decode()
    request = RequestFactory().get("/")
    for answer in (server_error(request), bad_request(request, ValueError()), permission_denied(request, ValueError())):
        assert b"bureau/bureau.css" in answer.content
