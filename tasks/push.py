"""Who wants to be told of a task's events, where, and with which credentials. Delivering is `tasks.outbox`'s."""

import re
import uuid
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction
from django.db.models import Case, F, Value, When
from django.utils import timezone

from directory.exceptions import CredentialInvalid, RemoteError
from directory.identity import Caller
from tasks.content import MAX_ID, UNSTORABLE
from tasks.exceptions import PushConfigInvalid, PushConfigNotFound, TaskNotFound
from tasks.models import PushConfig, Task
from tasks.sql import Insert

MOST_PER_TASK = 10
MAX_SECRET = 4096
_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VISIBLE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class PushDraft:
    """A push configuration as a caller asks for it. Its text form does not show the secrets."""

    config_id: str
    url: str
    version: str
    token: str = field(default="", repr=False)
    scheme: str = ""
    credentials: str = field(default="", repr=False)

    def check(self) -> None:
        """Raises PushConfigInvalid. Resolves the address, so not within a transaction."""
        if len(self.config_id) > MAX_ID or "\0" in self.config_id:
            raise PushConfigInvalid(f"An id may have {MAX_ID} characters at most.")
        if self.scheme and not _SCHEME.fullmatch(self.scheme):
            raise PushConfigInvalid("The authentication scheme is not a word that HTTP has.")
        for secret in (self.token, self.credentials):
            if secret and (len(secret) > MAX_SECRET or not _VISIBLE.fullmatch(secret)):
                raise PushConfigInvalid("The token or the credentials can't be sent in a header.")
        from directory.credentials import check_encrypted
        from directory.http import check_url

        try:
            check_url(self.url)
            if self.token or self.credentials:
                check_encrypted(self.url)
        except (RemoteError, CredentialInvalid) as error:
            raise PushConfigInvalid(str(error)) from None


def push_insert(task_id: uuid.UUID, draft: PushDraft, *, cursor: int, now: datetime) -> Insert:
    """The row, to be written with the task it belongs to; what is behind event `cursor` will be delivered."""
    config_id = draft.config_id or str(uuid.uuid4())
    return Insert(
        PushConfig,
        {
            "task_id": task_id,
            "config_id": config_id,
            **_columns(task_id, config_id, draft),
            "cursor": cursor,
            "due_at": None,
            "epoch": 0,
            "failures": 0,
            "failing_since": None,
            "disabled_at": None,
            "is_over": False,
            "created_at": now,
        },
    )


def set_config(caller: Caller, task_id: uuid.UUID, draft: PushDraft) -> PushConfig:
    """Tell of what happens to the task from now on; one of the same id is replaced.

    Raises TaskNotFound, PushConfigInvalid.
    """
    if not Task.objects.filter(pk=task_id, owner=caller.principal).exists():
        raise TaskNotFound
    draft.check()
    with transaction.atomic():
        return store_push(task_id, draft)


def store_push(task_id: uuid.UUID, draft: PushDraft) -> PushConfig:
    """The writing part, within a transaction, for a draft that was checked. Raises PushConfigInvalid, TaskNotFound."""
    # First the flag, and with it the row's lock: whatever moves the task after this sees it.
    if not Task.objects.filter(pk=task_id).update(has_push=True):
        raise TaskNotFound
    config_id = draft.config_id or str(uuid.uuid4())
    others = PushConfig.objects.filter(task_id=task_id).exclude(config_id=config_id)
    if others.count() >= MOST_PER_TASK:
        raise PushConfigInvalid(f"A task may have {MOST_PER_TASK} push configurations at most.")
    fields = _columns(task_id, config_id, draft)
    named = PushConfig.objects.filter(task_id=task_id, config_id=config_id)
    due_at = due_unless_claimed(timezone.now())
    if not named.update(**fields, failures=0, failing_since=None, disabled_at=None, due_at=due_at):
        last_seq = Task.objects.values_list("last_seq", flat=True).get(pk=task_id)
        now = timezone.now()
        PushConfig.objects.create(task_id=task_id, config_id=config_id, cursor=last_seq, created_at=now, **fields)
    return named.get()


def due_unless_claimed(now: datetime) -> Case:
    """For `due_at`: now, but where a delivery is under way, the end of its lease, lest a later event overtakes it."""
    return Case(When(failures=0, due_at__gt=now, then=F("due_at")), default=Value(now))


def get_config(caller: Caller, task_id: uuid.UUID, config_id: str) -> PushConfig:
    """Raises PushConfigNotFound, also for a task of somebody else's."""
    if UNSTORABLE.search(config_id):
        raise PushConfigNotFound
    try:
        return PushConfig.objects.get(task_id=task_id, task__owner=caller.principal, config_id=config_id)
    except PushConfig.DoesNotExist:
        raise PushConfigNotFound from None


def list_configs(caller: Caller, task_id: uuid.UUID) -> list[PushConfig]:
    """The oldest first. Raises TaskNotFound."""
    if not Task.objects.filter(pk=task_id, owner=caller.principal).exists():
        raise TaskNotFound
    return list(PushConfig.objects.filter(task_id=task_id).order_by("id"))


def delete_config(caller: Caller, task_id: uuid.UUID, config_id: str) -> None:
    """Nothing more is delivered there. One that is not there is deleted already. Raises TaskNotFound."""
    if not Task.objects.filter(pk=task_id, owner=caller.principal).exists():
        raise TaskNotFound
    if not UNSTORABLE.search(config_id):
        PushConfig.objects.filter(task_id=task_id, config_id=config_id).delete()


def token_of(config: PushConfig) -> str:
    """In the clear. Raises CredentialUnreadable."""
    return _decrypted(config, config.token)


def credentials_of(config: PushConfig) -> str:
    """In the clear. Raises CredentialUnreadable."""
    return _decrypted(config, config.credentials)


def rotate() -> int:
    """Encrypt every stored token and credential with the newest key; returns how many. Raises CredentialUnreadable."""
    from directory.credentials import encrypt

    count = 0
    with transaction.atomic():
        for config in list(PushConfig.objects.exclude(token="", credentials="").select_for_update().order_by("pk")):
            token, credentials = token_of(config), credentials_of(config)
            owner = _owner(config.task_id, config.config_id)
            count += PushConfig.objects.filter(pk=config.pk).update(
                token=encrypt(owner, token) if token else "",
                credentials=encrypt(owner, credentials) if credentials else "",
            )
    return count


def _decrypted(config: PushConfig, text: str) -> str:
    if not text:
        return ""
    from directory.credentials import decrypt

    return decrypt(_owner(config.task_id, config.config_id), text)


def _columns(task_id: uuid.UUID, config_id: str, draft: PushDraft) -> dict[str, str]:
    # The ciphers are loaded by processes that need them.
    from directory.credentials import encrypt

    owner = _owner(task_id, config_id)
    return {
        "url": draft.url,
        "version": draft.version,
        "token": encrypt(owner, draft.token) if draft.token else "",
        "scheme": draft.scheme,
        "credentials": encrypt(owner, draft.credentials) if draft.credentials else "",
    }


def _owner(task_id: uuid.UUID, config_id: str) -> str:
    return f"push {task_id} {config_id}"
