"""Addresses of the pages."""

from __future__ import annotations

from django.contrib.auth import views as auth
from django.urls import path

from bureau.dashboard import agent_acts, agents, enrol, mission, missions, questions, remembered
from bureau.dashboard.account import PasswordView, SignInView
from bureau.dashboard.stream import stream

urlpatterns = [
    path("", missions.index, name="missions"),
    path("missions/new/", missions.start, name="start"),
    path("missions/<uuid:task_id>/", mission.show, name="mission"),
    path("missions/<uuid:task_id>/stream/", stream, name="stream"),
    path("missions/<uuid:task_id>/messages/", mission.say, name="say"),
    path("missions/<uuid:task_id>/parts/", mission.parts, name="parts"),
    path("missions/<uuid:task_id>/stop/", mission.stop, name="stop"),
    path("missions/<uuid:task_id>/cancel/", mission.cancel, name="cancel"),
    path("missions/<uuid:task_id>/log/", mission.log, name="log"),
    path("missions/<uuid:task_id>/artifacts/<uuid:artifact_id>/<int:number>/", mission.download, name="artifact"),
    path("questions/", questions.index, name="questions"),
    path("questions/count/", questions.count, name="open-questions"),
    path("questions/<uuid:task_id>/", questions.answer, name="answer"),
    path("agents/", agents.index, name="agents"),
    path("agents/<slug:slug>/", agents.show, name="agent"),
    path("agents/<slug:slug>/probe/", agents.probe, name="agent-probe"),
    path("agents/<slug:slug>/credential/", agent_acts.credential, name="agent-credential"),
    path("agents/<slug:slug>/do/<slug:verb>/", agent_acts.act, name="agent-act"),
    path("add-agent/", enrol.add, name="add-agent"),
    path("memory/", remembered.show, name="memory"),
    path("memory/clear/", remembered.clear, name="clear-memory"),
    path("login/", SignInView.as_view(), name="login"),
    path("logout/", auth.LogoutView.as_view(next_page="login"), name="logout"),
    path("password/", PasswordView.as_view(), name="password"),
]
