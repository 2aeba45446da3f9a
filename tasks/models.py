"""What is being done. States, their groups and their arrows are written here and nowhere else."""

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q


class Context(models.Model):
    """A conversation: tasks that belong together (A2A `contextId`).

    `key` is the caller's word for it and may be any string, so it is unique per owner only.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.CharField(max_length=80)
    key = models.CharField(max_length=255)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["owner", "key"], name="context_key_once_per_owner")]

    def __str__(self) -> str:
        return self.key


class Task(models.Model):
    """submitted -> working -> completed | failed | rejected; working <-> input-/auth-required;
    any live state -> canceled; any live state -> failed, when its turns kill their workers. A terminal task never
    changes again (A2A 1.0, section 4.1.3).

    Only `tasks.state` writes `state`, and always with its event.

    A task is due for a worker while `due_at` has passed. A claim moves `due_at` to the end of its
    lease, so an expired lease is nothing special: the task is simply due again. One that waits for a person may be
    due, too: something happened below it, and it keeps its state while a worker sees to that.
    `epoch` is the fencing token: every claim and every cancel adds one, and whoever writes names the
    epoch it holds.
    """

    class State(models.TextChoices):
        SUBMITTED = "submitted", "submitted"
        WORKING = "working", "working"
        INPUT_REQUIRED = "input-required", "input required"
        AUTH_REQUIRED = "auth-required", "auth required"
        COMPLETED = "completed", "completed"
        FAILED = "failed", "failed"
        CANCELED = "canceled", "canceled"
        REJECTED = "rejected", "rejected"

    RUNNING = (State.SUBMITTED, State.WORKING)
    INTERRUPTED = (State.INPUT_REQUIRED, State.AUTH_REQUIRED)
    LIVE = RUNNING + INTERRUPTED
    TERMINAL = (State.COMPLETED, State.FAILED, State.CANCELED, State.REJECTED)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    context = models.ForeignKey(Context, on_delete=models.CASCADE, related_name="tasks")
    # Most tasks have no parent: their indexes are below, and partial.
    parent = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.CASCADE, related_name="children", db_index=False
    )
    root = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="descendants",
        db_index=False,
        help_text="The mission it belongs to; empty for a mission itself.",
    )
    agent = models.ForeignKey("directory.Agent", on_delete=models.PROTECT, related_name="tasks", db_index=False)
    owner = models.CharField(max_length=80)
    title = models.CharField(max_length=120, blank=True, help_text="The beginning of what was asked.")
    state = models.CharField(max_length=16, choices=State, default=State.SUBMITTED)
    status_message = models.JSONField(null=True, blank=True, help_text="A2A message that came with the state.")
    status_at = models.DateTimeField()
    references = models.ManyToManyField("self", symmetrical=False, blank=True, related_name="referenced_by")
    metadata = models.JSONField(default=dict, blank=True)
    last_seq = models.PositiveIntegerField(default=0, help_text="Number of its newest event.")
    queue = models.CharField(max_length=40, default="default")
    due_at = models.DateTimeField(null=True, blank=True, help_text="When a worker should look at it next.")
    epoch = models.PositiveIntegerField(default=0)
    lease_owner = models.CharField(max_length=120, blank=True, default="")
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Claims since it was handed in or handed back.")
    unread = models.BooleanField(default=False, help_text="Something came in that the running turn has not seen.")
    has_push = models.BooleanField(
        default=False, db_default=False, help_text="Somebody asked to be told of its events by push."
    )
    reach = models.TextField(
        blank=True,
        default="",
        db_default="",
        help_text="Slugs of the agents that its caller might call, with spaces between them; empty for all.",
    )
    created_at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [
            # claims.claim_next: the oldest due task of a queue
            models.Index(fields=["queue", "due_at"], name="task_due", condition=Q(due_at__isnull=False)),
            # services.cancel_task and the pages: what lives below a task
            models.Index(fields=["parent"], name="task_parent", condition=Q(parent__isnull=False)),
            models.Index(fields=["root"], name="task_root", condition=Q(root__isnull=False)),
            # an agent's page: what was delegated to it
            models.Index(
                fields=["agent", "-status_at", "-id"], name="task_delegated", condition=Q(parent__isnull=False)
            ),
            # queries.list_tasks: a caller's tasks, newest status first, keyset paged
            models.Index(fields=["owner", "-status_at", "-id"], name="task_owner_status"),
            # the dashboard: missions by state, newest status first
            models.Index(fields=["state", "-status_at", "-id"], name="mission_state", condition=Q(parent=None)),
            models.Index(fields=["-status_at", "-id"], name="mission_status", condition=Q(parent=None)),
            # the dashboard: a person's open questions, counted on every page
            models.Index(
                fields=["owner", "-status_at", "-id"],
                name="mission_waiting",
                condition=Q(parent=None, state__in=["input-required", "auth-required"]),
            ),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=~Q(state__in=["completed", "failed", "canceled", "rejected"])
                | Q(due_at=None, lease_owner=""),
                name="terminal_task_is_not_due",
            ),
        ]

    def __str__(self) -> str:
        return self.title or str(self.id)

    @property
    def is_terminal(self) -> bool:
        return self.state in self.TERMINAL


class Message(models.Model):
    """Talk: what a user or an agent said within a task (A2A `Message`). It leaves the task open."""

    class Role(models.TextChoices):
        USER = "user", "user"
        AGENT = "agent", "agent"

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="messages")
    message_id = models.CharField(max_length=255, help_text="The sender's id; two messages may share one.")
    role = models.CharField(max_length=8, choices=Role)
    parts = models.JSONField()
    metadata = models.JSONField(default=dict, blank=True)
    extensions = models.JSONField(default=list, blank=True)
    reference_ids = models.JSONField(default=list, blank=True, help_text="Ids of the tasks it refers to.")
    author = models.CharField(
        max_length=80, blank=True, default="", db_default="", help_text="The operator who said it in the owner's place."
    )
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["id"]

    def __str__(self) -> str:
        return f"{self.role}: {self.message_id}"


class Artifact(models.Model):
    """A deliverable (A2A `Artifact`). A new version keeps the name and, in a new task, gets a new id.

    Within one task a name stands once: a turn that is run again replaces what it left half done.
    While `is_complete` is false the parts so far are in the events, which `queries` folds.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="artifacts")
    # The task's own, repeated: the next version of a name is found in one index, whatever the planner knows.
    context = models.ForeignKey(Context, on_delete=models.CASCADE, related_name="artifacts", db_index=False)
    name = models.CharField(max_length=200)
    version = models.PositiveIntegerField(default=1, help_text="Counts the artifacts of this name in the context.")
    description = models.TextField(blank=True)
    parts = models.JSONField(default=list)
    metadata = models.JSONField(default=dict, blank=True)
    is_complete = models.BooleanField(default=True)
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["created_at", "id"]
        # results.finish: the newest version of a name in a conversation
        indexes: ClassVar = [models.Index(fields=["context", "name", "version"], name="artifact_version")]
        constraints: ClassVar = [models.UniqueConstraint(fields=["task", "name"], name="artifact_name_once_per_task")]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"


class StoredFile(models.Model):
    """Bytes that a part refers to, kept in Django's default storage."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.CharField(max_length=80)
    name = models.CharField(max_length=255)
    media_type = models.CharField(max_length=120)
    size = models.PositiveBigIntegerField(help_text="Bytes.")
    sha256 = models.CharField(max_length=64)
    content = models.FileField(upload_to="files/%Y/%m/%d", max_length=300)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["-created_at"]

    def __str__(self) -> str:
        return self.name


class Event(models.Model):
    """One line of a task's log, numbered 1, 2, 3 … without a gap. Readers resume after any number."""

    class Kind(models.TextChoices):
        STATUS = "status", "status"
        ARTIFACT = "artifact", "artifact"
        MESSAGE = "message", "message"
        DECISION = "decision", "decision"
        TOOL = "tool", "tool"

    # What other agents see; the rest is for the mission's page.
    ON_THE_WIRE = (Kind.STATUS, Kind.ARTIFACT)

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="events", db_index=False)
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=8, choices=Kind)
    payload = models.JSONField()
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["task", "seq"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["task", "seq"], name="event_seq_once_per_task"),
            models.CheckConstraint(condition=Q(seq__gte=1), name="event_seq_from_one"),
        ]

    def __str__(self) -> str:
        return f"{self.task_id} #{self.seq} {self.kind}"


class Stop(models.Model):
    """The turn that a cancel caught in the hands of a worker. It is over when that worker has let go.

    Both times are the database's. A worker that never says so is gone when its lease has run out.
    """

    task = models.OneToOneField(Task, primary_key=True, on_delete=models.CASCADE, related_name="stop")
    epoch = models.PositiveIntegerField(help_text="Of the claim that was under way.")
    worker = models.CharField(max_length=120)
    asked_at = models.DateTimeField()
    lease_until = models.DateTimeField(help_text="Without a word from the worker it is over by then.")
    stopped_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.worker}: {self.stopped_at or 'not yet'}"


class SubPlan(models.Model):
    """Steps of a mission that make one deliverable, and the one role that should do them all."""

    mission = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="sub_plans")
    key = models.SlugField(max_length=64, help_text="Its name within the plan.")
    goal = models.TextField()
    role = models.SlugField(max_length=64, help_text="Recommended role, for the deliverable as a whole.")
    expected_output = models.TextField(blank=True)
    depends_on = models.ManyToManyField("self", symmetrical=False, blank=True, related_name="needed_by")
    task = models.OneToOneField(
        Task,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="sub_plan",
        help_text="The task it was delegated as, in its current attempt.",
    )
    attempt = models.PositiveSmallIntegerField(default=0, help_text="How often it was tried again.")
    retry_at = models.DateTimeField(null=True, blank=True, help_text="Not to be tried again before.")
    wanted = models.JSONField(
        default=list, blank=True, help_text="Slugs of the agents it is meant for, best first; empty: whoever fits."
    )
    avoid = models.JSONField(default=list, blank=True, help_text="Slugs of agents that shall not have it again.")
    hint = models.TextField(blank=True, help_text="What to do differently in this attempt.")
    is_dropped = models.BooleanField(default=False, help_text="Given up for good; what it did is kept.")
    note = models.TextField(blank=True, help_text="Why it was dropped or is tried again.")
    counted = models.PositiveSmallIntegerField(
        default=0, help_text="How many of its attempts are in the success rates."
    )

    class Meta:
        ordering: ClassVar = ["mission", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["mission", "key"], name="sub_plan_key_once_per_mission")
        ]

    def __str__(self) -> str:
        return f"{self.key} ({self.role})"


class Subtask(models.Model):
    """One step of a sub-plan, with its evidence. Done steps are skipped when a sub-plan resumes."""

    class State(models.TextChoices):
        PENDING = "pending", "pending"
        DONE = "done", "done"
        FAILED = "failed", "failed"

    sub_plan = models.ForeignKey(SubPlan, on_delete=models.CASCADE, related_name="subtasks")
    position = models.PositiveSmallIntegerField()
    instruction = models.TextField()
    tool = models.CharField(max_length=64, blank=True, help_text="Empty: a language model does it.")
    params = models.JSONField(default=dict, blank=True, help_text="{{step 1}} stands for the result of a step.")
    state = models.CharField(max_length=8, choices=State, default=State.PENDING)
    evidence = models.JSONField(default=dict, blank=True, help_text="What shows that it was done.")

    class Meta:
        ordering: ClassVar = ["sub_plan", "position"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["sub_plan", "position"], name="subtask_position_once_per_sub_plan")
        ]

    def __str__(self) -> str:
        return f"{self.position}. {self.instruction[:60]}"


class PushConfig(models.Model):
    """Where somebody wants to be told of a task's events (A2A `TaskPushNotificationConfig`).

    The event log is the outbox: `cursor` is the number of the newest event that was dealt with, and what is
    behind it is still to be delivered. `due_at`, the lease and `epoch` work as those of a task do.
    """

    task = models.ForeignKey(Task, on_delete=models.CASCADE, related_name="push_configs", db_index=False)
    config_id = models.CharField(max_length=255, help_text="The caller's id; unique per task only.")
    url = models.CharField(max_length=2000)
    version = models.CharField(max_length=8, help_text="Of the protocol that it was asked for in.")
    # Encrypted (`directory.credentials`).
    token = models.TextField(blank=True, editable=False)
    scheme = models.CharField(max_length=100, blank=True)
    credentials = models.TextField(blank=True, editable=False)
    cursor = models.PositiveIntegerField(help_text="Number of the newest event that was delivered.")
    due_at = models.DateTimeField(null=True, blank=True)
    epoch = models.PositiveIntegerField(default=0)
    failures = models.PositiveIntegerField(default=0, help_text="In a row.")
    failing_since = models.DateTimeField(null=True, blank=True)
    disabled_at = models.DateTimeField(null=True, blank=True, help_text="When it was given up.")
    is_over = models.BooleanField(default=False, help_text="The task has ended, and everything was delivered.")
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["task", "config_id"], name="push_config_once_per_task")
        ]
        indexes: ClassVar = [
            # outbox.claim_due
            models.Index(fields=["due_at"], name="push_due", condition=Q(due_at__isnull=False)),
            # outbox.sweep: those that may have missed something
            models.Index(
                fields=["task"],
                name="push_waiting",
                condition=Q(due_at__isnull=True, disabled_at__isnull=True, is_over=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.config_id} of {self.task_id}"


class PushAttempt(models.Model):
    """One try to deliver one event to one address."""

    config = models.ForeignKey(PushConfig, on_delete=models.CASCADE, related_name="attempts")
    seq = models.PositiveIntegerField(help_text="Number of the event within its task.")
    status = models.PositiveSmallIntegerField(null=True, blank=True, help_text="HTTP status of the answer, if any.")
    error = models.CharField(max_length=300, blank=True)
    seconds = models.FloatField()
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["-id"]

    def __str__(self) -> str:
        return f"event {self.seq}: {self.error or self.status}"


class PushEndpoint(models.Model):
    """The circuit breaker of a place that one owner's pushes go to. There is a row only while it fails.

    From a number of failures in a row on it is open; when `retry_at` has passed, one delivery tries. Many owners may
    use one host, and one who names wrong addresses there must not hold back the others.
    """

    owner = models.CharField(max_length=80, default="", db_default="", help_text="Whose pushes.")
    origin = models.CharField(max_length=300, help_text="Scheme, host and port.")
    failures = models.PositiveIntegerField(default=0, help_text="In a row, of all deliveries there.")
    retry_at = models.DateTimeField(null=True, blank=True, help_text="While it is open: when one may try again.")
    failing_since = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "origin"], name="push_endpoint_once_per_owner")
        ]

    def __str__(self) -> str:
        return self.origin
