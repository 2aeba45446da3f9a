"""ASGI entry point of the floors, for uvicorn; DJANGO_SETTINGS_MODULE is set by who starts it."""

from django.core.asgi import get_asgi_application

application = get_asgi_application()
