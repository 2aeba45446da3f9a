from django.apps import AppConfig


class AgentsConfig(AppConfig):
    name = "agents"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # Makes the agents that come with Bureau known by name, and those of other authors.
        from agents import authoring, handlers  # noqa: F401

        authoring.discover()
