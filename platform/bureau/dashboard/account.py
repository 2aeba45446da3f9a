"""The signed-in user's own account."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.contrib.auth.views import LoginView, PasswordChangeView
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.urls import reverse_lazy

from bureau.sign_in import minutes_shut


class SignInForm(AuthenticationForm):
    """Django's, in our words; which of the two was wrong is not said."""

    error_messages = AuthenticationForm.error_messages | {
        "invalid_login": "User name and password do not match. Capital and small letters count in both."
    }

    def get_invalid_login_error(self) -> ValidationError:
        if minutes := minutes_shut(self.cleaned_data.get("username") or ""):
            wait = f"{minutes} minute{'s' if minutes > 1 else ''}"
            return ValidationError(f"Too many wrong passwords for this user name. Try again in {wait}.", "too_many")
        return super().get_invalid_login_error()


class SignInView(LoginView):
    """Sign in, and go on to the page that asked for it."""

    template_name = "dashboard/login.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True


class PasswordView(PasswordChangeView):
    """Change one's password; other sessions of the user end with it."""

    template_name = "dashboard/password.html"
    success_url = reverse_lazy("missions")

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        response = super().form_valid(form)
        messages.success(self.request, "Your password was changed.")
        return response
