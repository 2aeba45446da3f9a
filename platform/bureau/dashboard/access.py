"""Who asks, and what of the missions they may see."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import wraps

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse

from directory.identity import CHANGE_TASK, Caller
from tasks.models import Task


def signed_in(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorator: strangers are sent to sign in. A part that HTMX asked for makes its page do so."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        if request.user.is_authenticated:
            return view(request, *args, **kwargs)
        if request.headers.get("HX-Request"):
            return HttpResponse(headers={"HX-Refresh": "true"})
        return redirect_to_login(request.get_full_path() if request.method == "GET" else "/")

    return guarded


def operators_only(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorator: people who do not operate the place are refused, and strangers sent to sign in."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        if not caller_of(request).is_operator:
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return signed_in(guarded)


def require(caller: Caller, permission: str) -> None:
    """Raises PermissionDenied when this operator may not do it; in the admin, they may not either."""
    if not caller.may(permission):
        raise PermissionDenied


def require_change(caller: Caller, task: Task) -> None:
    """Raises PermissionDenied when the task is somebody else's, and the caller may only look at it."""
    if not may_change(caller, task.owner):
        raise PermissionDenied


def may_change(caller: Caller, owner: str) -> bool:
    """Whether they may answer and cancel what this principal owns."""
    return owner == caller.principal or caller.may(CHANGE_TASK)


def caller_of(request: HttpRequest) -> Caller:
    """The signed-in user as a caller."""
    return as_caller(request.user)


def as_caller(user: AbstractBaseUser | AnonymousUser) -> Caller:
    assert isinstance(user, AbstractBaseUser), "the view lets only signed-in users through"
    return Caller.from_user(user)


def find_task(caller: Caller, task_id: uuid.UUID) -> Task:
    """The task with its agent and context. Raises Http404, also for somebody else's: both look the same."""
    tasks = Task.objects.select_related("agent", "context", "parent", "root")
    task = (tasks if caller.is_operator else tasks.filter(owner=caller.principal)).filter(pk=task_id).first()
    if task is None:
        raise Http404("There is no such mission.")
    return task
