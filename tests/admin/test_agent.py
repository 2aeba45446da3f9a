import pytest

from directory.exceptions import AgentNotFound
from directory.models import Agent, Skill
from directory.services import get_agent

pytestmark = pytest.mark.django_db


def form_of(agent: Agent | None = None, **changes) -> dict:
    skills = list(agent.skills.all()) if agent else []
    form = {
        "name": "Gardener",
        "slug": "gardener",
        "kind": "local",
        "handler": "echo",
        "version": "1.0.0",
        "is_enabled": "on",
        "options": "{}",
        "input_modes": "text/plain\n application/json \n",
        "output_modes": "text/plain",
        "skills-TOTAL_FORMS": len(skills) + 1,
        "skills-INITIAL_FORMS": len(skills),
        f"skills-{len(skills)}-skill_id": "mow",
        f"skills-{len(skills)}-name": "Mow",
        f"skills-{len(skills)}-tags": "garden",
        f"skills-{len(skills)}-examples": "Mow the lawn\nCut the grass\n\n",
    }
    for number, skill in enumerate(skills):
        form |= {f"skills-{number}-id": skill.pk, f"skills-{number}-agent": agent.pk}
        form |= {f"skills-{number}-{name}": getattr(skill, name) for name in ("skill_id", "name", "description")}
        form |= {f"skills-{number}-{name}": "\n".join(getattr(skill, name)) for name in ("tags", "examples")}
    return form | changes


def test_an_agent_is_made_with_its_skills_a_line_for_each_example(as_olga):
    assert as_olga.post("/admin/directory/agent/add/", form_of()).status_code == 302
    agent = Agent.objects.get()
    assert agent.input_modes == ["text/plain", "application/json"]
    assert Skill.objects.get().examples == ["Mow the lawn", "Cut the grass"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"handler": ""}, "A local agent needs this."),
        ({"slug": "Bad_Slug"}, "Enter a valid value."),
        ({"options": "{"}, "Enter a valid JSON."),
    ],
)
def test_what_cannot_work_is_refused(as_olga, changes, said):
    assert said in as_olga.post("/admin/directory/agent/add/", form_of(**changes)).content.decode()
    assert not Agent.objects.exists()


def test_a_change_counts_at_once(as_olga, agent):
    assert get_agent("assistant").name == "Assistant"
    as_olga.post(f"/admin/directory/agent/{agent.pk}/change/", form_of(agent, slug="assistant", name="Butler"))
    assert get_agent("assistant").name == "Butler"
    assert agent.skills.count() == 2


def test_agents_are_disabled_and_enabled(as_olga, agent):
    form = {"action": "disable", "_selected_action": [agent.pk]}
    assert "1 agent was disabled." in as_olga.post("/admin/directory/agent/", form, follow=True).content.decode()
    with pytest.raises(AgentNotFound):
        get_agent("assistant")
    as_olga.post("/admin/directory/agent/", form | {"action": "enable"})
    assert get_agent("assistant") == agent


def test_an_agent_with_tasks_cannot_be_deleted(as_olga, agent, claim):
    assert as_olga.post(f"/admin/directory/agent/{agent.pk}/delete/", {"post": "yes"}).status_code == 403
    assert Agent.objects.exists()


def test_an_agent_without_tasks_can(as_olga, agent):
    as_olga.post(f"/admin/directory/agent/{agent.pk}/delete/", {"post": "yes"})
    assert not Agent.objects.exists()


def test_a_remote_agent_is_never_made_by_hand(as_olga):
    assert 'name="kind"' not in as_olga.get("/admin/directory/agent/add/").content.decode()
    forged = form_of(kind="remote", url="http://10.0.0.1/", card_url="http://10.0.0.1/")
    assert as_olga.post("/admin/directory/agent/add/", forged).status_code == 302
    agent = Agent.objects.get()
    assert (agent.kind, agent.url, agent.card_url) == ("local", "", "")


def test_of_a_remote_agent_only_what_is_ours_to_say_is_changed(as_olga):
    agent = Agent.objects.create(slug="far", name="Far", kind="remote", url="https://far.example.org/", version="7")
    forged = form_of(
        agent, kind="local", url="http://10.0.0.1/", name="Near", version="8", role="researcher", slug="far"
    )
    assert as_olga.post(f"/admin/directory/agent/{agent.pk}/change/", forged).status_code == 302
    agent.refresh_from_db()
    assert (agent.kind, agent.url, agent.name, agent.version) == ("remote", "https://far.example.org/", "Far", "7")
    assert (agent.role, agent.skills.count()) == ("researcher", 0)
