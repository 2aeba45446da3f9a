from django.apps import AppConfig


class BureauConfig(AppConfig):
    name = "bureau"
    verbose_name = "Bureau"

    def ready(self) -> None:
        # Registers the checks, and makes our Celery app the one that `shared_task` means.
        from bureau import celery, checks  # noqa: F401
