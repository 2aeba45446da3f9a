"""The forms: a new mission, and a message to one."""

from __future__ import annotations

import uuid
from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.template.defaultfilters import filesizeformat

from bureau.dashboard.question import WORDS
from directory.models import Agent
from tasks.content import MAX_ID, UNSTORABLE

MAX_TEXT = 100_000
MAX_FILES = 20
DEFAULT_AGENT = "assistant"
STALE = "This form was not complete; please send it once more."


class FilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True
    template_name = "django/forms/widgets/file.html"


class FilesField(forms.FileField):
    """Several files, with a limit on how many and on their size together."""

    widget = FilesInput

    def clean(self, data: Any, initial: Any = None) -> list[UploadedFile[Any]]:
        """Raises ValidationError in the sender's words."""
        uploads = data if isinstance(data, list | tuple) else [data] if data else []
        files = [super(FilesField, self).clean(upload, initial) for upload in uploads]
        if len(files) > MAX_FILES:
            raise ValidationError(f"You can attach {MAX_FILES} files at most; these are {len(files)}.")
        if sum(file.size for file in files) > settings.BUREAU_MAX_BODY_BYTES:
            limit = filesizeformat(settings.BUREAU_MAX_BODY_BYTES)
            raise ValidationError(f"The files may have {limit} together.")
        return files


class MessageForm(forms.Form):
    """Text and files. `token` makes a form that comes in twice take effect once."""

    token = forms.UUIDField(error_messages=dict.fromkeys(("required", "invalid"), STALE))
    text = forms.CharField(
        max_length=MAX_TEXT,
        widget=forms.Textarea(attrs={"rows": 3}),
        error_messages={"required": "Write what you want to say."},
    )
    attachments = FilesField(
        required=False,
        label="Files",
        error_messages={"empty": "One of the files is empty."},
    )

    @property
    def token_value(self) -> str:
        """What the hidden field holds: the token that came in, so that trying again is no second mission."""
        try:
            return str(uuid.UUID(self.data.get("token", "")))
        except ValueError:
            return str(uuid.uuid4())

    def clean_text(self) -> str:
        text: str = self.cleaned_data["text"]
        if UNSTORABLE.search(text):
            raise ValidationError("The text holds a NUL character or half a character, which cannot be kept.")
        return text


class AnswerForm(MessageForm):
    """A message to a mission. `question` names the one that it answers; `choice` is a button that answers by itself."""

    question = forms.CharField(required=False, max_length=MAX_ID)
    choice = forms.ChoiceField(required=False, choices=[(word, word) for word in WORDS])
    field_order = ("token", "question", "choice", "text", "attachments")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["text"].required = False

    def clean_text(self) -> str:
        text = super().clean_text() or self.cleaned_data.get("choice", "")
        if not text:
            raise ValidationError("Write what you want to say.")
        return text


class AgentField(forms.ModelChoiceField[Agent]):
    """A choice of agents by name; their descriptions are on their own page."""

    def label_from_instance(self, obj: Agent) -> str:
        return obj.name


class MissionForm(MessageForm):
    """A new mission: a message, and the agent it is for."""

    agent = AgentField(
        Agent.objects.none(),
        to_field_name="slug",
        empty_label=None,
        error_messages={"invalid_choice": "That agent is not available; choose another."},
    )
    field_order = ("token", "text", "agent", "attachments")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        agents = Agent.objects.filter(is_enabled=True)
        choice = self.fields["agent"]
        assert isinstance(choice, AgentField)
        choice.queryset = agents
        if "agent" not in self.initial:
            self.initial["agent"] = DEFAULT_AGENT
        text = self.fields["text"]
        text.label = "What should be done?"
        text.widget.attrs |= {"rows": 6}
        text.error_messages["required"] = "Write what should be done."
