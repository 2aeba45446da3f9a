"""Forms about remote agents, which the admin and the pages share."""

from django import forms

from directory.credentials import Secret
from directory.models import Credential

NO_CREDENTIAL = ("", "none")


class SecretForm(forms.Form):
    """The credential part of a form. What was typed is never sent back."""

    auth = forms.ChoiceField(required=False, label="Credential", choices=[NO_CREDENTIAL, *Credential.Kind.choices])
    secret = forms.CharField(
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", "size": 60}),
        help_text="Key, token, password or client secret. It is encrypted, and cannot be shown again.",
    )
    header = forms.CharField(required=False, max_length=100, help_text="Header of an API key; X-API-Key without it.")
    username = forms.CharField(required=False, max_length=200, help_text="User name, or the OAuth 2 client id.")
    token_url = forms.CharField(required=False, max_length=500, label="Token URL", help_text="For OAuth 2.")
    scope = forms.CharField(required=False, max_length=500, help_text="For OAuth 2; separated by blanks.")

    def given(self) -> Secret | None:
        """The credential that was entered, or None."""
        data = self.cleaned_data
        if not data["auth"]:
            return None
        fields = {name: data[name] for name in ("secret", "header", "username", "token_url", "scope")}
        return Secret(kind=data["auth"], **fields)


class AddForm(SecretForm):
    url = forms.CharField(
        max_length=2000,
        label="URL",
        widget=forms.TextInput(attrs={"size": 80, "placeholder": "https://agent.example"}),
        help_text="Any address of the agent: its base, its card, or where it is spoken to.",
    )
    slug = forms.SlugField(required=False, max_length=64, help_text="Its short name here; from its card without it.")
