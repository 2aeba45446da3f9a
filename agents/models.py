"""How work was done: every choice of a brain and every act of a tool, on record."""

import uuid
from typing import ClassVar

from django.db import models


class Decision(models.Model):
    """One choice: what was asked, what could be chosen, what was, and why."""

    task = models.ForeignKey("tasks.Task", on_delete=models.CASCADE, related_name="decisions")
    point = models.CharField(max_length=20, help_text="Decision point: route, tool, fulfil …")
    key = models.CharField(
        max_length=120, help_text="Names the choice within its task, the same when the turn is run again."
    )
    brain = models.CharField(max_length=12, help_text="claude or rules.")
    inputs = models.JSONField(default=dict)
    candidates = models.JSONField(default=list, help_text="What could be chosen, with scores where there are any.")
    choice = models.JSONField(default=dict)
    confidence = models.FloatField(null=True, blank=True, help_text="0 to 1.")
    rationale = models.TextField(blank=True)
    is_fallback = models.BooleanField(
        default=False, help_text="The answer was unclear, so the point's fallback stands."
    )
    error = models.TextField(blank=True, help_text="Why the brain could not answer.")
    model = models.CharField(max_length=80, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Calls to the model, retries included.")
    input_tokens = models.PositiveIntegerField(default=0)
    output_tokens = models.PositiveIntegerField(default=0)
    cache_read_tokens = models.PositiveIntegerField(default=0)
    cache_write_tokens = models.PositiveIntegerField(default=0)
    cost_usd = models.DecimalField(max_digits=12, decimal_places=6, null=True, blank=True)
    latency_ms = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["id"]
        indexes: ClassVar = [
            models.Index(fields=["point", "-created_at"], name="decision_point"),
            # brain.recall: a choice made before the turn was run again
            models.Index(fields=["task", "key"], name="decision_key"),
        ]

    def __str__(self) -> str:
        return f"{self.point} by {self.brain}"


class ToolCall(models.Model):
    """One act. The row is written before the act, so a crash in between leaves `started`: it may have
    happened, and is never silently repeated unless the tool says that repeating does no harm."""

    class State(models.TextChoices):
        STARTED = "started", "started"
        SUCCEEDED = "succeeded", "succeeded"
        FAILED = "failed", "failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    task = models.ForeignKey("tasks.Task", on_delete=models.CASCADE, related_name="tool_calls")
    key = models.CharField(
        max_length=120, help_text="Names the act within its task, the same when the turn is run again."
    )
    tool = models.CharField(max_length=64)
    params = models.JSONField(default=dict)
    state = models.CharField(max_length=10, choices=State, default=State.STARTED)
    result = models.JSONField(null=True, blank=True)
    error = models.TextField(blank=True)
    error_class = models.CharField(max_length=40, blank=True)
    epoch = models.PositiveIntegerField(help_text="The task's epoch when it was started.")
    started_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["started_at", "id"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["task", "key"], name="tool_call_key_once_per_task")]

    def __str__(self) -> str:
        return f"{self.tool} ({self.state})"


class Budget(models.Model):
    """What a mission may take of the model, with all that is below it, and what it has taken."""

    mission = models.OneToOneField("tasks.Task", primary_key=True, on_delete=models.CASCADE, related_name="budget")
    calls_limit = models.PositiveIntegerField()
    tokens_limit = models.PositiveIntegerField()
    usd_limit = models.DecimalField(max_digits=12, decimal_places=6)
    calls = models.PositiveIntegerField(default=0)
    tokens = models.PositiveIntegerField(default=0)
    usd = models.DecimalField(max_digits=12, decimal_places=6, default=0)
    answered = models.CharField(
        max_length=255, blank=True, help_text="The message that raised it last, so that it raises it once."
    )
    is_closed = models.BooleanField(default=False, help_text="No more calls: finish with what there is.")

    def __str__(self) -> str:
        return f"{self.calls} of {self.calls_limit} calls"


class Reservation(models.Model):
    """What a call that is under way may come to. It goes when the call ends, or when another worker takes over."""

    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="reservations")
    task = models.ForeignKey("tasks.Task", on_delete=models.CASCADE, related_name="+")
    epoch = models.PositiveIntegerField(help_text="The task's epoch when it was made.")
    tokens = models.PositiveIntegerField()
    usd = models.DecimalField(max_digits=12, decimal_places=6)

    def __str__(self) -> str:
        return f"{self.tokens} tokens"


class RemoteLeg(models.Model):
    """The part of a task that happens at a remote agent: one task of theirs. No worker is held by it.

    sending -> following <-> asking; any of them -> ended. The row is written before the message goes out, so what a
    crash leaves behind says `sending`: it may have arrived, and is never silently sent again.
    """

    class Phase(models.TextChoices):
        IDLE = "idle", "nothing sent"
        SENDING = "sending", "a message is on its way"
        FOLLOWING = "following", "the remote agent is at work"
        ASKING = "asking", "the remote agent waits for an answer"
        ENDED = "ended", "ended"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    task = models.OneToOneField("tasks.Task", on_delete=models.CASCADE, related_name="remote_leg")
    phase = models.CharField(max_length=9, choices=Phase, default=Phase.IDLE)
    sent = models.PositiveIntegerField(default=0, help_text="Messages that went out, or are going out.")
    tries = models.PositiveSmallIntegerField(default=0, help_text="Sends in a row that reached nobody.")
    remote_task_id = models.CharField(max_length=255, blank=True)
    remote_context_id = models.CharField(max_length=255, blank=True)
    answer = models.JSONField(default=dict, blank=True, help_text="What was last heard; text of a stranger.")
    mirrored = models.JSONField(default=dict, blank=True, help_text="Which messages and artifacts are here already.")
    asked = models.CharField(max_length=64, blank=True, help_text="Digest of the question that was passed on last.")
    error = models.CharField(max_length=300, blank=True)
    error_class = models.CharField(max_length=40, blank=True)
    due_at = models.DateTimeField(null=True, blank=True, help_text="When to ask the remote agent next.")
    pause = models.FloatField(default=0.5, help_text="Seconds between the last two looks.")
    failures = models.PositiveSmallIntegerField(default=0, help_text="Looks in a row that failed.")
    progress_at = models.DateTimeField(help_text="When something new was heard last; the deadline counts from here.")
    callback_hash = models.CharField(max_length=64, blank=True, help_text="SHA-256 of the callback's secret.")
    pushed_at = models.DateTimeField(null=True, blank=True, help_text="When the callback was called last.")
    stream_by = models.CharField(max_length=100, blank=True, help_text="Whose event loop hears the agent's stream.")
    stream_until = models.DateTimeField(null=True, blank=True, help_text="Before this, nobody else opens a stream.")
    stream_failures = models.PositiveSmallIntegerField(default=0, help_text="Streams in a row that broke.")
    cancel_due = models.BooleanField(default=False, help_text="The cancel has been taken up, and not gone through yet.")
    canceled_at = models.DateTimeField(null=True, blank=True, help_text="When the cancel was taken up.")
    ended_at = models.DateTimeField(null=True, blank=True, help_text="When it was known to have ended.")
    late_at = models.DateTimeField(null=True, blank=True, help_text="When `answer` came after our task had ended.")
    is_counted = models.BooleanField(default=False, help_text="Its end is in the success rates.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        # following.follow_due: what is to be looked at
        indexes: ClassVar = [
            models.Index(fields=["due_at"], name="remote_leg_open", condition=~models.Q(phase="ended")),
            # streams.claim: what may be heard by a stream
            models.Index(fields=["stream_until"], name="remote_leg_unheard", condition=models.Q(phase="following")),
        ]

    def __str__(self) -> str:
        return f"{self.task_id} ({self.phase})"
