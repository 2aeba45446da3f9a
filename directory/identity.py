"""Who is calling. A principal is a string, so that it can be stored and compared anywhere."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser

    from directory.models import ApiClient


SEND = "send"
READ = "read"
CANCEL = "cancel"
SCOPES = (SEND, READ, CANCEL)
ALL = frozenset(SCOPES)
# Nobody has this one unless it was given by name: to change the directory, as an operator does.
MANAGE = "manage"
GRANTABLE = (*SCOPES, MANAGE)
# What operators may do to what is not theirs: Django's permissions, the same on the pages as in the admin.
CHANGE_TASK = "tasks.change_task"
ADD_AGENT = "directory.add_remoteagent"
CHANGE_AGENT = "directory.change_agent"
CHANGE_REMOTE = "directory.change_remoteagent"
REMOVE_AGENT = "directory.delete_remoteagent"
DECIDE_ON_CARDS = "directory.change_cardrevision"
GIVE_CREDENTIALS = "directory.add_credential"
TAKE_CREDENTIALS = "directory.delete_credential"
CLEAR_MEMORY = "directory.delete_outgoingrequest"
PERMISSIONS = (
    *(CHANGE_TASK, ADD_AGENT, CHANGE_AGENT, CHANGE_REMOTE, REMOVE_AGENT, DECIDE_ON_CARDS),
    *(GIVE_CREDENTIALS, TAKE_CREDENTIALS, CLEAR_MEMORY),
)


@dataclass(frozen=True, slots=True)
class Caller:
    """The one on whose behalf something is done; `principal` owns contexts and tasks.

    `scopes` say what may be done on the protocol, and `agents` (slugs; empty for all) with whom. Operators see what
    is everybody's; `permissions` say which of it they may change.
    """

    principal: str
    name: str
    is_operator: bool = False
    scopes: frozenset[str] = ALL
    agents: frozenset[str] = frozenset()
    permissions: frozenset[str] = frozenset()

    def may(self, permission: str) -> bool:
        return self.is_operator and permission in self.permissions

    def may_call(self, slug: str) -> bool:
        return not self.agents or slug in self.agents

    @property
    def may_manage(self) -> bool:
        """Whether they may change which agents are known here."""
        return self.may(ADD_AGENT) or MANAGE in self.scopes

    @property
    def is_person(self) -> bool:
        """Whether this is somebody with a good account here, and not a program of somebody's."""
        return self.principal.startswith("user:") and bool(self.scopes)

    @property
    def is_token(self) -> bool:
        """Whether this is the holder of an issuer's token, of which we keep no record."""
        return self.principal.startswith("token:")

    @property
    def is_anonymous(self) -> bool:
        return self.principal == "anonymous"

    @classmethod
    def from_user(cls, user: "AbstractBaseUser") -> "Caller":
        """Asks the database for what an operator may do, unless they may do everything."""
        is_operator = bool(getattr(user, "is_staff", False))
        may = frozenset(one for one in PERMISSIONS if user.has_perm(one)) if is_operator else frozenset()  # type: ignore[attr-defined]
        return cls(f"user:{user.pk}", user.get_username(), is_operator=is_operator, permissions=may)

    @classmethod
    def from_client(cls, client: "ApiClient") -> "Caller":
        return cls(f"client:{client.pk}", client.name, scopes=frozenset(client.scopes), agents=frozenset(client.agents))


ANONYMOUS = Caller("anonymous", "anonymous")
