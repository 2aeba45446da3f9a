"""Who exists: agents, the skills they advertise, and the API clients that may call them."""

from typing import ClassVar

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

from directory.identity import SCOPES


class Agent(models.Model):
    """One agent, as its card describes it (A2A 1.0, section 4.4.1 `AgentCard`).

    A local agent names its `handler`, a class registered in `agents`; a remote one has a `url`, where its
    chosen interface is, and the card that was accepted. All text of a remote agent is untrusted.
    """

    class Kind(models.TextChoices):
        LOCAL = "local", "local"
        REMOTE = "remote", "remote"

    class Signature(models.TextChoices):
        NONE = "", "not signed"
        VERIFIED = "verified", "verified"
        UNVERIFIED = "unverified", "could not be verified"

    slug = models.SlugField(max_length=64, unique=True, validators=[RegexValidator(r"^[a-z0-9][a-z0-9-]*$")])
    name = models.CharField(max_length=120)
    description = models.TextField(blank=True)
    kind = models.CharField(max_length=8, choices=Kind, default=Kind.LOCAL)
    role = models.SlugField(max_length=64, blank=True, help_text="What it is for, e.g. coordinator or researcher.")
    handler = models.CharField(max_length=120, blank=True, help_text="Name of the local implementation.")
    url = models.URLField(max_length=500, blank=True, help_text="Address of a remote agent.")
    version = models.CharField(max_length=40, default="1.0.0")
    input_modes = models.JSONField(default=list, blank=True, help_text="Media types it takes.")
    output_modes = models.JSONField(default=list, blank=True, help_text="Media types it gives.")
    options = models.JSONField(default=dict, blank=True, help_text="Settings of the implementation.")
    is_enabled = models.BooleanField(default=True, help_text="A disabled agent takes no new task.")
    needs_task = models.BooleanField(
        default=True,
        db_default=True,
        help_text="If not, what it says at once is answered as a bare message, without a task.",
    )
    is_published = models.BooleanField(default=True, help_text="Whether strangers may read its card.")
    # Of remote agents only, and written by the directory alone.
    card_url = models.CharField(max_length=500, blank=True, editable=False, help_text="Where its card is read.")
    card = models.JSONField(default=dict, blank=True, editable=False, help_text="The accepted card, A2A 1.0 ProtoJSON.")
    binding = models.CharField(max_length=16, blank=True, editable=False, help_text="JSONRPC or HTTP+JSON.")
    protocol_version = models.CharField(max_length=8, blank=True, editable=False, help_text="1.0 or 0.3.")
    tenant = models.CharField(max_length=100, blank=True, editable=False)
    signature = models.CharField(max_length=12, choices=Signature, blank=True, default="", editable=False)
    signature_note = models.CharField(max_length=200, blank=True, editable=False)
    is_internal = models.BooleanField(
        default=False, editable=False, help_text="Its card is at an address that BUREAU_OUTBOUND_ALLOW allows."
    )
    quarantined_at = models.DateTimeField(null=True, blank=True, editable=False)
    quarantine_reason = models.CharField(max_length=500, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering: ClassVar = ["slug"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["card_url"], condition=~models.Q(card_url=""), name="agent_once_per_card")
        ]

    def __str__(self) -> str:
        return self.slug

    @property
    def is_remote(self) -> bool:
        return self.kind == self.Kind.REMOTE


class RemoteAgent(Agent):
    """A remote agent, for the pages that are about those alone."""

    class Meta:
        proxy = True


class Skill(models.Model):
    """One thing an agent can do (A2A 1.0 `AgentSkill`). Examples decide routing: give several."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="skills")
    skill_id = models.SlugField(max_length=64)
    name = models.CharField(max_length=120)
    description = models.TextField(blank=True)
    tags = models.JSONField(default=list, blank=True)
    examples = models.JSONField(default=list, blank=True)

    class Meta:
        ordering: ClassVar = ["agent", "skill_id"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["agent", "skill_id"], name="skill_once_per_agent")]

    def __str__(self) -> str:
        return f"{self.agent.slug}/{self.skill_id}"


def all_scopes() -> list[str]:
    return list(SCOPES)


class ApiClient(models.Model):
    """A program that may call Bureau. Only a hash of its key is kept; the key is shown once."""

    name = models.CharField(max_length=120, unique=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="api_clients",
        help_text="Who answers for it.",
    )
    prefix = models.CharField(max_length=16, editable=False, help_text="First letters of the key, to tell keys apart.")
    key_hash = models.CharField(max_length=64, unique=True, editable=False)
    scopes = models.JSONField(default=all_scopes, blank=True, help_text="What it may do: send, read, cancel, manage.")
    agents = models.JSONField(default=list, blank=True, help_text="Slugs of the agents it may call; empty for all.")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering: ClassVar = ["name"]
        verbose_name = "API client"

    def __str__(self) -> str:
        return self.name


class Credential(models.Model):
    """What a remote agent knows us by. The secret is encrypted (`directory.credentials`) and never shown again."""

    class Kind(models.TextChoices):
        API_KEY = "api_key", "API key"
        BEARER = "bearer", "bearer token"
        BASIC = "basic", "user name and password"
        OAUTH2 = "oauth2", "OAuth 2 client credentials"

    agent = models.OneToOneField(Agent, on_delete=models.CASCADE, related_name="credential")
    kind = models.CharField(max_length=8, choices=Kind)
    header = models.CharField(max_length=100, blank=True, help_text="Header field of an API key.")
    username = models.CharField(max_length=200, blank=True, help_text="User name, or the OAuth 2 client id.")
    token_url = models.CharField(max_length=500, blank=True, help_text="Where OAuth 2 tokens are issued.")
    scope = models.CharField(max_length=500, blank=True)
    secret = models.TextField(editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.agent.slug} ({self.get_kind_display()})"


class Health(models.Model):
    """How a remote agent has been lately, when to look again, and its circuit breaker.

    closed -> open (enough failures in a row) -> half-open (`retry_at` is past: one probe decides) -> closed or open
    """

    class Circuit(models.TextChoices):
        CLOSED = "closed", "closed"
        OPEN = "open", "open"
        HALF_OPEN = "half-open", "half-open"

    agent = models.OneToOneField(Agent, on_delete=models.CASCADE, related_name="health")
    failures = models.PositiveIntegerField(default=0, help_text="In a row.")
    trips = models.PositiveIntegerField(default=0, help_text="How often in a row the circuit opened.")
    opened_at = models.DateTimeField(null=True, blank=True)
    retry_at = models.DateTimeField(null=True, blank=True, help_text="When one probe may try again.")
    last_seen_at = models.DateTimeField(null=True, blank=True)
    last_failed_at = models.DateTimeField(null=True, blank=True)
    last_error = models.CharField(max_length=300, blank=True)
    latency = models.FloatField(null=True, blank=True, help_text="Seconds per call, smoothed.")
    card_read_at = models.DateTimeField(null=True, blank=True)
    card_etag = models.CharField(max_length=200, blank=True)
    card_modified = models.CharField(max_length=60, blank=True, help_text="Last-Modified of the card, as it was sent.")
    card_failures = models.PositiveIntegerField(default=0, help_text="In a row, of reading the card.")
    # A claim moves these ahead, so that of several schedulers one does the work.
    refresh_due_at = models.DateTimeField(default=timezone.now, db_index=True)
    probe_due_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        verbose_name_plural = "health"

    def __str__(self) -> str:
        return f"{self.agent.slug}: {self.circuit}"

    @property
    def circuit(self) -> "Health.Circuit":
        if self.opened_at is None:
            return self.Circuit.CLOSED
        if self.retry_at is not None and self.retry_at > timezone.now():
            return self.Circuit.OPEN
        return self.Circuit.HALF_OPEN


class DelegationCount(models.Model):
    """How delegations to an agent ended, per skill and day: what success rates are made of."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="delegation_counts")
    skill_id = models.CharField(max_length=64, blank=True, help_text="Empty where no skill was meant.")
    day = models.DateField()
    succeeded = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    seconds = models.FloatField(default=0.0, help_text="Of all of them together.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["agent", "skill_id", "day"], name="count_once_per_skill_and_day")
        ]

    def __str__(self) -> str:
        return f"{self.agent.slug}/{self.skill_id or '-'} {self.day}"


class CardRevision(models.Model):
    """A card that differed from the accepted one when it was read, and what became of it.

    pending -> accepted | rejected | superseded (by a newer one, or by the accepted card coming back);
    a harmless change is `applied` at once.
    """

    class State(models.TextChoices):
        APPLIED = "applied", "applied"
        PENDING = "pending", "waiting for an operator"
        ACCEPTED = "accepted", "accepted"
        REJECTED = "rejected", "rejected"
        SUPERSEDED = "superseded", "superseded"

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=State)
    digest = models.CharField(max_length=64, help_text="SHA-256 of the card without its signatures.")
    card = models.JSONField()
    signature = models.CharField(max_length=12, choices=Agent.Signature, blank=True, default="")
    signature_note = models.CharField(max_length=200, blank=True)
    changes = models.JSONField(default=list, help_text="What differs from the card before, a sentence each.")
    grounds = models.JSONField(default=list, help_text="Why an operator has to look: url, skills, security.")
    found_at = models.DateTimeField(auto_now_add=True)
    decided_at = models.DateTimeField(null=True, blank=True)
    decided_by = models.CharField(max_length=80, blank=True, help_text="Principal of the operator.")

    class Meta:
        ordering: ClassVar = ["agent", "-number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["agent", "number"], name="revision_number_once"),
            models.UniqueConstraint(
                fields=["agent"], condition=models.Q(state="pending"), name="one_pending_revision_per_agent"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.agent.slug} revision {self.number}"


class ProbeResult(models.Model):
    """A conformance probe of a remote agent, and what it found.

    waiting -> running -> done | failed. A job that dies leaves `running`, which another takes over after a while.
    """

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        RUNNING = "running", "running"
        DONE = "done", "done"
        FAILED = "failed", "could not be made"

    OPEN = (State.WAITING, State.RUNNING)

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="probe_results")
    state = models.CharField(max_length=7, choices=State, default=State.DONE)
    claimed_at = models.DateTimeField(null=True, blank=True, help_text="When a job took it up last.")
    attempts = models.PositiveSmallIntegerField(default=0, help_text="How many jobs have taken it up.")
    error = models.CharField(max_length=300, blank=True, help_text="Why it could not be made.")
    score = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="0 to 100: the share of checks that passed, by weight."
    )
    checks = models.JSONField(
        default=list, help_text="One object each: name, outcome (passed, failed, skipped), weight, reason."
    )
    seconds = models.FloatField(default=0.0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["agent"],
                condition=models.Q(state__in=["waiting", "running"]),
                name="one_open_probe_per_agent",
            )
        ]

    def __str__(self) -> str:
        return f"{self.agent.slug}: {self.state if self.score is None else self.score}"

    @property
    def is_open(self) -> bool:
        return self.state in self.OPEN


class DelegationRule(models.Model):
    """Who may pass work on to whom. Without a rule that fits, it is allowed.

    The highest priority decides; of equal ones, deny. An empty side is everybody.
    """

    class Effect(models.TextChoices):
        ALLOW = "allow", "allow"
        DENY = "deny", "deny"

    effect = models.CharField(max_length=5, choices=Effect)
    priority = models.IntegerField(default=0, help_text="The highest decides.")
    source_agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    source_role = models.SlugField(max_length=64, blank=True)
    target_agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    target_role = models.SlugField(max_length=64, blank=True)
    target_tag = models.CharField(max_length=50, blank=True, help_text="A tag of one of its skills.")
    note = models.CharField(max_length=200, blank=True, help_text="Why; shown when it refuses.")
    is_enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering: ClassVar = ["-priority", "id"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=models.Q(source_agent=None) | models.Q(source_role=""),
                name="rule_has_one_source",
                violation_error_message="A rule is about an agent or a role that asks, not both.",
            ),
            models.CheckConstraint(
                condition=models.Q(target_agent=None, target_role="")
                | models.Q(target_agent=None, target_tag="")
                | models.Q(target_role="", target_tag=""),
                name="rule_has_one_target",
                violation_error_message="A rule is about an agent, a role or a tag that is asked, one of them.",
            ),
        ]

    def __str__(self) -> str:
        source = self.source_agent or self.source_role or "anybody"
        tag = f"#{self.target_tag}" if self.target_tag else ""
        return f"{self.effect} {source} → {self.target_agent or self.target_role or tag or 'anybody'}"


class OutgoingRequest(models.Model):
    """Something we asked of a remote agent, and its answer: the rolling memory. What came in is never here."""

    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    agent_name = models.CharField(max_length=120)
    url = models.CharField(max_length=500)
    principal = models.CharField(max_length=80, blank=True, help_text="On whose behalf.")
    sender = models.CharField(max_length=64, blank=True, help_text="Slug of our agent that asked.")
    message_id = models.CharField(max_length=255, blank=True)
    context_id = models.CharField(max_length=255, blank=True, help_text="The remote agent's.")
    task_id = models.CharField(max_length=255, blank=True, help_text="The remote agent's.")
    request = models.JSONField(help_text="The parts that were sent; long text is cut.")
    state = models.CharField(max_length=20, blank=True, help_text="Of the remote task, when it was last heard of.")
    answer = models.JSONField(default=list, help_text="The parts that came back; long text is cut.")
    error = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        # "What did we ask lately", for everybody and for one caller; "the request that began this task".
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(fields=["principal", "-id"], name="outgoing_of_principal"),
            models.Index(fields=["agent", "task_id"], name="outgoing_of_task"),
        ]

    def __str__(self) -> str:
        return f"{self.agent_name} {self.created_at:%Y-%m-%d %H:%M}"
