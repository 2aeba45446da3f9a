"""Principals as people know them: the name of the user or of the API client behind the string."""

from collections.abc import Iterable

from django.contrib.auth import get_user_model

from directory.models import ApiClient


def names_of(principals: Iterable[str]) -> dict[str, str]:
    """A name for each principal, in two queries at most; one that is gone keeps its string."""
    wanted = set(principals)
    users = get_user_model().objects.filter(pk__in=_keys(wanted, "user:"))
    clients = ApiClient.objects.filter(pk__in=_keys(wanted, "client:"))
    known = {f"user:{user.pk}": user.get_username() for user in users}
    known |= {f"client:{pk}": f"{name} (API)" for pk, name in clients.values_list("pk", "name")}
    return {principal: known.get(principal, principal) for principal in wanted}


def _keys(principals: Iterable[str], kind: str) -> list[str]:
    return [key for text in principals if (key := text.removeprefix(kind)) != text and key.isdigit()]
