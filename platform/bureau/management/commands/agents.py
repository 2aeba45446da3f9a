"""`manage.py agents add|list|show|probe|remove|…`: the directory from the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from bureau import startup
from bureau.management import access
from directory import cards, credentials, enrolment, health, memory, revisions
from directory.condition import in_words
from directory.exceptions import DirectoryError
from directory.health import Rate
from directory.memory import excerpt
from directory.models import Agent, CardRevision, OutgoingRequest, ProbeResult
from directory.probe import probe_agent
from directory.untrusted import json_text, printable
from tasks import push

# Who decided, where it was somebody with a shell on this machine.
OPERATOR = "command"


class Command(BaseCommand):
    help = "Add, list, show, probe and remove agents of the directory, decide on changed cards, read what was asked."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="add | list | show | probe | remove | …")
        add = verbs.add_parser("add", help="Add a remote agent by any URL of it.")
        add.add_argument("url", metavar="URL")
        add.add_argument("--slug", default=None, metavar="NAME", help="Its short name (default: from its card).")
        access.add_options(add)
        listing = verbs.add_parser("list", help="List all agents.")
        listing.add_argument("--json", action="store_true")
        for verb, words in (
            ("show", "Show all that is known of an agent."),
            ("probe", "Check what a remote agent does against what its card claims; it gets a few messages."),
            ("refresh", "Read a remote agent's card again."),
            ("accept", "Accept the changed card that waits."),
            ("reject", "Keep the card that was accepted before."),
            ("release", "End the quarantine, with the card that is accepted."),
            ("credential", "Give a remote agent another credential, or none (without --auth)."),
            ("remove", "Forget a remote agent."),
        ):
            one = verbs.add_parser(verb, help=words)
            one.add_argument("slug", metavar="NAME")
            if verb in {"show", "probe"}:
                one.add_argument("--json", action="store_true")
            if verb == "credential":
                access.add_options(one)

        verbs.add_parser("rotate-credentials", help="Encrypt all stored secrets anew, with the newest secret key.")
        remembered = verbs.add_parser("memory", help="Show what was asked of remote agents, newest first.")
        remembered.add_argument("--limit", type=int, default=20, metavar="N", help="How many (default: %(default)s).")
        remembered.add_argument("--json", action="store_true")
        remembered.add_argument("--clear", action="store_true", help="Forget all of it instead.")

    def handle(self, *args: Any, **options: Any) -> None:
        startup.require_tables()
        act: Callable[[dict[str, Any]], None] = getattr(self, f"_{options['verb'].replace('-', '_')}")
        try:
            act(options)
        except DirectoryError as error:
            raise CommandError(str(error)) from None

    def _say(self, text: str) -> None:
        self.stdout.write(printable(text))

    def _add(self, options: dict[str, Any]) -> None:
        secret = access.secret_from(options)
        agent = enrolment.add_remote_agent(options["url"], options["slug"], secret, by=OPERATOR)
        self._say(f"Added {agent.slug}: {agent.name}, {_interface(agent)}, {agent.skills.count()} skills.")
        needs = cards.auth_needs(agent.card)
        if needs and not options["auth"]:
            wanted = " or ".join(map(str, needs))
            self._say(f"It wants {wanted}: manage.py agents credential {agent.slug} --auth …")

    def _list(self, options: dict[str, Any]) -> None:
        agents = list(Agent.objects.select_related("health").prefetch_related("skills"))
        found = health.rates(agents)
        if options["json"]:
            rows = [_as_dict(agent, found.get((agent.pk, ""), Rate())) for agent in agents]
            self.stdout.write(json_text(rows, indent=2))
            return
        for agent in agents:
            rate = found.get((agent.pk, ""), Rate())
            self._say("\t".join([agent.slug, agent.kind, in_words(agent), _seen(agent), _rate(rate), agent.name]))

    def _show(self, options: dict[str, Any]) -> None:
        agent = _agent(options["slug"])
        found = health.rates([agent])
        if options["json"]:
            document = _as_dict(agent, found.get((agent.pk, ""), Rate())) | {"card": agent.card}
            self.stdout.write(json_text(document, indent=2))
            return
        for line in _described(agent, found):
            self._say(line)

    def _probe(self, options: dict[str, Any]) -> None:
        result = probe_agent(_agent(options["slug"]))
        if options["json"]:
            document = {"score": result.score, "seconds": result.seconds, "checks": result.checks}
            self.stdout.write(json_text(document, indent=2))
        else:
            for check in result.checks:
                self._say(f"{check['outcome']}\t{check['name']}\t{check['reason']}")
            self._say(f"Score: {result.score} of 100, in {result.seconds:.1f} seconds.")
        if any(check["outcome"] == "failed" for check in result.checks):
            sys.exit(2)

    def _refresh(self, options: dict[str, Any]) -> None:
        agent = _agent(options["slug"])
        revision = enrolment.refresh_agent(agent)
        if revision is None:
            self._say("Nothing new.")
            return
        for change in revision.changes:
            self._say(change)
        if revision.state == CardRevision.State.PENDING:
            self._say(f"{agent.slug} is in quarantine now: manage.py agents accept {agent.slug}, or reject.")

    def _accept(self, options: dict[str, Any]) -> None:
        revision = _pending(options["slug"])
        revisions.accept_revision(revision, OPERATOR)
        self._say(f"Accepted revision {revision.number} of {revision.agent.slug}.")

    def _reject(self, options: dict[str, Any]) -> None:
        revision = _pending(options["slug"])
        revisions.reject_revision(revision, OPERATOR)
        self._say(f"Rejected revision {revision.number}; {revision.agent.slug} stays in quarantine.")

    def _release(self, options: dict[str, Any]) -> None:
        agent = _agent(options["slug"])
        if not revisions.release_agent(agent):
            raise CommandError(f"{agent.slug} is not in quarantine.")
        self._say(f"{agent.slug} is out of quarantine.")

    def _credential(self, options: dict[str, Any]) -> None:
        agent = _agent(options["slug"])
        secret = access.secret_from(options)
        if not agent.is_remote:
            raise CommandError(f"{agent.slug} is an agent of this Bureau and needs no credential.")
        if secret:
            credentials.set_credential(agent, secret)
            self._say(f"{agent.slug} has a new credential.")
        elif credentials.remove_credential(agent):
            self._say(f"{agent.slug} has no credential any more.")
        else:
            raise CommandError(f"{agent.slug} has no credential; give one with --auth.")

    def _rotate_credentials(self, options: dict[str, Any]) -> None:
        agents, pushes = credentials.rotate(), push.rotate()
        self._say(f"Encrypted anew: the credentials of {agents} agents and of {pushes} push configurations.")

    def _memory(self, options: dict[str, Any]) -> None:
        if options["clear"]:
            self._say(f"{memory.clear()} forgotten.")
            return
        rows = memory.recent(limit=max(options["limit"], 1))
        if options["json"]:
            self.stdout.write(json_text([_remembered(row) for row in rows], indent=2))
            return
        for row in rows:
            how = row.error or row.state or ("answered" if row.answered_at else "no answer yet")
            asked, answer = excerpt(row.request), excerpt(row.answer)
            self._say("\t".join([f"{row.created_at:%Y-%m-%d %H:%M}", row.agent_name, how, asked, answer]))

    def _remove(self, options: dict[str, Any]) -> None:
        enrolment.remove_agent(_agent(options["slug"]))
        self._say(f"Removed {options['slug']}.")


def _remembered(row: OutgoingRequest) -> dict[str, Any]:
    return {
        "agent": row.agent_name,
        "url": row.url,
        "principal": row.principal,
        "sender": row.sender,
        "at": row.created_at.isoformat(),
        "request": row.request,
        "state": row.state,
        "answer": row.answer,
        "error": row.error,
    }


def _agent(slug: str) -> Agent:
    agent = Agent.objects.select_related("health").filter(slug=slug).first()
    if agent is None:
        raise CommandError(f"There is no agent {slug!r}.")
    return agent


def _pending(slug: str) -> CardRevision:
    revision = _agent(slug).revisions.filter(state=CardRevision.State.PENDING).first()
    if revision is None:
        raise CommandError(f"No changed card of {slug} waits.")
    return revision


def _interface(agent: Agent) -> str:
    return f"{agent.binding} {agent.protocol_version} at {agent.url}" if agent.binding else agent.url


def _seen(agent: Agent) -> str:
    row = getattr(agent, "health", None)
    if row is None:
        return "-"
    return f"seen {row.last_seen_at:%Y-%m-%d %H:%M}" if row.last_seen_at else "never seen"


def _rate(rate: Rate) -> str:
    return "-" if rate.share is None else f"{rate.share:.0%} of {rate.count}"


def _as_dict(agent: Agent, rate: Rate) -> dict[str, Any]:
    row = getattr(agent, "health", None)
    return {
        "slug": agent.slug,
        "name": agent.name,
        "kind": agent.kind,
        "role": agent.role,
        "state": in_words(agent),
        "url": agent.url,
        "binding": agent.binding,
        "protocolVersion": agent.protocol_version,
        "signature": agent.signature,
        "skills": [skill.skill_id for skill in agent.skills.all()],
        "lastSeen": row.last_seen_at.isoformat() if row and row.last_seen_at else None,
        "latency": row.latency if row else None,
        "succeeded": rate.succeeded,
        "failed": rate.failed,
    }


def _described(agent: Agent, found: dict[tuple[int, str], Rate]) -> Iterator[str]:
    """All that is known, a line each."""
    yield f"{agent.slug}: {agent.name} {agent.version} ({agent.kind}), {in_words(agent)}"
    if agent.description:
        yield f"  {agent.description}"
    if agent.is_remote:
        yield from _remote_lines(agent)
    yield f"Success:     {_rate(found.get((agent.pk, ''), Rate()))}"
    for skill in agent.skills.all():
        rate = found.get((agent.pk, skill.skill_id))
        yield f"Skill:       {skill.skill_id}: {skill.name}" + (f", {_rate(rate)}" if rate else "")
    waiting = agent.revisions.filter(state=CardRevision.State.PENDING).first()
    if waiting:
        yield f"Revision {waiting.number} waits, because of {', '.join(waiting.grounds)}:"
        yield from (f"  {change}" for change in waiting.changes)


def _remote_lines(agent: Agent) -> Iterator[str]:
    yield f"Card:        {agent.card_url}"
    yield f"Signature:   {agent.get_signature_display()}. {agent.signature_note}".rstrip()
    yield f"Interface:   {_interface(agent)}"
    yield f"Wants:       {' or '.join(map(str, cards.auth_needs(agent.card))) or 'no credential'}"
    credential = getattr(agent, "credential", None)
    yield f"Credential:  {credential.get_kind_display() if credential else 'none'}"
    row = getattr(agent, "health", None)
    if row:
        took = f", {row.latency * 1000:.0f} ms a call" if row.latency is not None else ""
        yield f"Health:      {_seen(agent)}{took}, {row.failures} failures in a row. {row.last_error}".rstrip()
    if agent.quarantine_reason:
        yield f"Quarantine:  {agent.quarantine_reason}"
    probed = agent.probe_results.filter(state=ProbeResult.State.DONE).first()
    if probed:
        yield f"Probed:      {probed.created_at:%Y-%m-%d %H:%M}, score {probed.score}"
