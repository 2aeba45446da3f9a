"""Where remote agents tell us that something has happened to a task of theirs. What it is, we ask them ourselves."""

from __future__ import annotations

import hmac
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from agents.models import RemoteLeg
from directory.services import hash_key
from tasks import doorbell


@csrf_exempt
@require_POST
def callback(request: HttpRequest, leg_id: UUID) -> HttpResponse:
    """Make the leg due. The body is not read: whoever learned the secret can only have us look sooner."""
    bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
    given = hash_key(request.headers.get("X-A2A-Notification-Token", "") or bearer)
    leg = RemoteLeg.objects.filter(pk=leg_id).exclude(callback_hash="").first()
    if leg is None or not hmac.compare_digest(given, leg.callback_hash):
        return HttpResponse("There is no such callback.\n", status=404, content_type="text/plain")
    # An asking leg too: what the remote agent says next may come before we have taken the question in.
    open_legs = RemoteLeg.objects.filter(pk=leg_id, phase__in=[RemoteLeg.Phase.FOLLOWING, RemoteLeg.Phase.ASKING])
    now = timezone.now()
    if open_legs.update(due_at=now, pushed_at=now):
        doorbell.ring_follow()
    return HttpResponse(status=204)
