"""Django settings, from the environment only: `bureau.env` holds the table, docs/settings.md explains it."""

from __future__ import annotations

import os
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs, urlsplit

import dj_database_url
import django_stubs_ext

from bureau import embedded, env, logs

# Lets annotations like QuerySet[Task] be evaluated.
django_stubs_ext.monkeypatch()

BASE_DIR = env.BASE_DIR
ENVIRONMENT = env.Environment(os.environ)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _own_address(host: str, port: int) -> str:
    """Where somebody on this machine finds the web server."""
    try:
        address = ip_address(host)
    except ValueError:
        return f"http://{host}:{port}"
    if address.is_unspecified:
        return f"http://localhost:{port}"
    return f"http://[{address}]:{port}" if address.version == 6 else f"http://{address}:{port}"


# --- Bureau's own -------------------------------------------------------------------------------

BUREAU_DATA = ENVIRONMENT[env.DATA]
BUREAU_HOST = ENVIRONMENT[env.HOST]
BUREAU_PORT = ENVIRONMENT[env.PORT]
BUREAU_WORKERS = ENVIRONMENT[env.WORKERS]
BUREAU_WORKER_THREADS = ENVIRONMENT[env.WORKER_THREADS]
BUREAU_PRODUCTION = ENVIRONMENT[env.PRODUCTION]
BUREAU_LOOPBACK = _is_loopback(BUREAU_HOST)
# Embedded: the part is started by `manage.py up` on this machine, for this data folder only.
BUREAU_EMBEDDED_REDIS = not ENVIRONMENT.given(env.REDIS_URL)
BUREAU_EMBEDDED_DATABASE = not ENVIRONMENT.given(env.DATABASE_URL)
BUREAU_PROJECT_ROOT = ENVIRONMENT[env.PROJECT_ROOT]
BUREAU_PUBLIC_URL = (ENVIRONMENT[env.PUBLIC_URL] or _own_address(BUREAU_HOST, BUREAU_PORT)).rstrip("/")
BUREAU_MODEL_SMALL = ENVIRONMENT[env.MODEL_SMALL]
BUREAU_MODEL_LARGE = ENVIRONMENT[env.MODEL_LARGE]
BUREAU_MODEL_TIMEOUT = ENVIRONMENT[env.MODEL_TIMEOUT]
BUREAU_LEASE_SECONDS = ENVIRONMENT[env.LEASE_SECONDS]
BUREAU_MAX_ATTEMPTS = ENVIRONMENT[env.MAX_ATTEMPTS]
BUREAU_SWEEP_SECONDS = ENVIRONMENT[env.SWEEP_SECONDS]
BUREAU_MAX_BODY_BYTES = ENVIRONMENT[env.MAX_BODY_BYTES]
BUREAU_PAGE_BYTES = ENVIRONMENT[env.PAGE_BYTES]
BUREAU_TASK_BYTES = ENVIRONMENT[env.TASK_BYTES]
BUREAU_FILE_LIMIT_BYTES = ENVIRONMENT[env.FILE_LIMIT_BYTES]
BUREAU_INLINE_BYTES = ENVIRONMENT[env.INLINE_BYTES]
BUREAU_OUTPUT_ROOT = (
    ENVIRONMENT[env.OUTPUT_ROOT] if ENVIRONMENT.given(env.OUTPUT_ROOT) else BUREAU_PROJECT_ROOT / "output"
)
BUREAU_TRIAGE = ENVIRONMENT[env.TRIAGE]
BUREAU_POINTS_OFF = ENVIRONMENT[env.POINTS_OFF]
BUREAU_PLAN_SIZE = ENVIRONMENT[env.PLAN_SIZE]
BUREAU_DELEGATE_STEPS = ENVIRONMENT[env.DELEGATE_STEPS]
BUREAU_SUB_PLAN_ATTEMPTS = ENVIRONMENT[env.SUB_PLAN_ATTEMPTS]
BUREAU_CONFIDENCE = ENVIRONMENT[env.CONFIDENCE]
BUREAU_CONFIRM = ENVIRONMENT[env.CONFIRM]
BUREAU_CONFIRM_SHARE = ENVIRONMENT[env.CONFIRM_SHARE]
BUREAU_BUDGET_CALLS = ENVIRONMENT[env.BUDGET_CALLS]
BUREAU_BUDGET_TOKENS = ENVIRONMENT[env.BUDGET_TOKENS]
BUREAU_BUDGET_USD = ENVIRONMENT[env.BUDGET_USD]
BUREAU_AGENTS = ENVIRONMENT[env.AGENTS]
ANTHROPIC_API_KEY = ENVIRONMENT[env.ANTHROPIC_API_KEY]
ANTHROPIC_BASE_URL = ENVIRONMENT[env.ANTHROPIC_BASE_URL]

_anonymous = ENVIRONMENT[env.ALLOW_ANONYMOUS]
if _anonymous is None:
    _anonymous = BUREAU_EMBEDDED_REDIS and BUREAU_EMBEDDED_DATABASE and BUREAU_LOOPBACK
BUREAU_ALLOW_ANONYMOUS = _anonymous and not BUREAU_PRODUCTION

# Two Bureaus on one machine are how people start; a server for strangers must not be sent to its neighbours.
_trusts_loopback = BUREAU_EMBEDDED_REDIS and BUREAU_EMBEDDED_DATABASE and BUREAU_LOOPBACK and not BUREAU_PRODUCTION
BUREAU_OUTBOUND_ALLOW: tuple[str, ...] = ENVIRONMENT[env.OUTBOUND_ALLOW]
if _trusts_loopback and not ENVIRONMENT.given(env.OUTBOUND_ALLOW):
    BUREAU_OUTBOUND_ALLOW = ("127.0.0.0/8", "::1")
BUREAU_JWT_ISSUER = ENVIRONMENT[env.JWT_ISSUER]
BUREAU_JWT_AUDIENCE = ENVIRONMENT[env.JWT_AUDIENCE]
BUREAU_JWT_JWKS_URL = ENVIRONMENT[env.JWT_JWKS_URL] or f"{BUREAU_JWT_ISSUER.rstrip('/')}/.well-known/jwks.json"
BUREAU_JWT_SCOPE_PREFIX = ENVIRONMENT[env.JWT_SCOPE_PREFIX]
BUREAU_JWT_AGENTS_CLAIM = ENVIRONMENT[env.JWT_AGENTS_CLAIM]
BUREAU_JWT_SKEW_SECONDS = ENVIRONMENT[env.JWT_SKEW_SECONDS]
if BUREAU_JWT_ISSUER and not BUREAU_JWT_AUDIENCE:
    # A token that the same issuer made for another service must not be good here.
    ENVIRONMENT.reject(env.JWT_ISSUER, "it needs BUREAU_JWT_AUDIENCE, too.")
    BUREAU_JWT_ISSUER = ""
BUREAU_CARD_KEY_FILE = ENVIRONMENT[env.CARD_KEY_FILE]
BUREAU_RATE_PER_MINUTE = ENVIRONMENT[env.RATE_PER_MINUTE]
BUREAU_CARD_REFRESH_SECONDS = ENVIRONMENT[env.CARD_REFRESH_SECONDS]
BUREAU_PROBE_SECONDS = ENVIRONMENT[env.PROBE_SECONDS]
BUREAU_KEEP_DAYS = ENVIRONMENT[env.KEEP_DAYS]
BUREAU_REMOTE_DEADLINE_SECONDS = ENVIRONMENT[env.REMOTE_DEADLINE_SECONDS]
BUREAU_REMOTE_STREAMS = ENVIRONMENT[env.REMOTE_STREAMS]

# --- Security -----------------------------------------------------------------------------------

DEBUG = False
try:
    embedded.private_folder(BUREAU_DATA)
    SECRET_KEY = ENVIRONMENT[env.SECRET_KEY]
    if not SECRET_KEY and not BUREAU_PRODUCTION:
        SECRET_KEY = embedded.secret_key(BUREAU_DATA)
except OSError as error:
    # Noted, for the checks to report: every command must be able to say what is wrong.
    ENVIRONMENT.reject(env.DATA, f"{BUREAU_DATA} cannot be used: {error.strerror}.")
    SECRET_KEY = ""
_fallbacks: tuple[str, ...] = ENVIRONMENT[env.SECRET_KEY_FALLBACKS]
SECRET_KEY_FALLBACKS = list(_fallbacks)
_hosts: tuple[str, ...] = ENVIRONMENT[env.ALLOWED_HOSTS]
if not _hosts and not BUREAU_PRODUCTION:
    _hosts = ("localhost", "127.0.0.1", "[::1]", BUREAU_HOST)
ALLOWED_HOSTS = list(_hosts)
CSRF_TRUSTED_ORIGINS = [BUREAU_PUBLIC_URL] if ENVIRONMENT.given(env.PUBLIC_URL) else []
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_NAME = "bureau_session"
CSRF_COOKIE_NAME = "bureau_csrf"

if BUREAU_PRODUCTION:
    # The proxy must set this header itself and drop what a client sent under its name.
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True
    # Neighbouring names and the browsers' preload list are for the owner of the domain to decide.
    SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]

AUTHENTICATION_BACKENDS = ["bureau.sign_in.GuardedBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

# --- Django -------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "bureau",
    "directory",
    "tasks",
    "agents",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_htmx",
    "template_partials",
]

# Every one of these works asynchronously: one that does not would hold a thread for each open stream.
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "bureau.dashboard.middleware.content_security",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "bureau.urls"
ASGI_APPLICATION = "bureau.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
# Django 6's way for addresses that are typed in without a scheme; the setting goes with Django 5.
FORMS_URLFIELD_ASSUME_HTTPS = True
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "libraries": {"pages": "bureau.dashboard.tags"},
        },
    },
]

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "bureau.a2a.tokens.TokenAuthentication",
        "bureau.a2a.authentication.ApiKeyAuthentication",
        "bureau.a2a.authentication.SignedInAuthentication",
        "bureau.a2a.authentication.LoopbackAuthentication",
    ],
    "DEFAULT_THROTTLE_CLASSES": ["bureau.a2a.throttles.CallerThrottle"] if BUREAU_RATE_PER_MINUTE else [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
}

SPECTACULAR_SETTINGS = {
    "TITLE": "Bureau: A2A over HTTP+JSON",
    "DESCRIPTION": "Agent2Agent protocol 1.0. What the operations mean is the same as on JSON-RPC.",
    "VERSION": "1.0",
    "OAS_VERSION": "3.1.0",
}

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
MEDIA_ROOT = BUREAU_DATA / "media"
DATA_UPLOAD_MAX_MEMORY_SIZE = BUREAU_MAX_BODY_BYTES

# --- Database -----------------------------------------------------------------------------------


def _parsed(url: str) -> dict[str, Any]:
    return {**dj_database_url.parse(url)}


def _database() -> dict[str, Any]:
    default = f"sqlite:///{BUREAU_DATA / 'bureau.sqlite3'}"
    try:
        database = _parsed(ENVIRONMENT[env.DATABASE_URL] or default)
    except ValueError as error:
        ENVIRONMENT.reject(env.DATABASE_URL, f"its value cannot be used: {error}.")
        database = _parsed(default)
    options: dict[str, Any] = dict(database.get("OPTIONS") or {})
    if database["ENGINE"] == "django.db.backends.sqlite3":
        options |= {
            # A transaction takes the write lock when it begins, and waits for it: a deferred one that
            # turns into a writer fails at once with "database is locked" when somebody else wrote.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
    else:
        options.setdefault("connect_timeout", 5)
        # `tasks.sql` prepares its statements; a threshold lets the driver do so.
        options.setdefault("prepare_threshold", 5)
        # Under ASGI each request has a thread of its own, so connections are shared through a pool;
        # CONN_MAX_AGE would leave one behind in every such thread. A worker's threads keep theirs.
        options["pool"] = {
            "min_size": 0,
            "max_size": 24 + BUREAU_WORKER_THREADS,
            "timeout": 10,
            "max_idle": 60,
        }
    return database | {"OPTIONS": options, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": True}


DATABASES = {"default": _database()}

# --- Queue --------------------------------------------------------------------------------------


def _broker(url: str) -> str:
    """Celery's word for a Redis address: it writes unix sockets differently."""
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return url
    account = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    number = parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis+socket://{account}{parts.path}?virtual_host={number}"


BUREAU_VALKEY_SOCKET = embedded.socket_path(BUREAU_DATA)
REDIS_URL = ENVIRONMENT[env.REDIS_URL] or f"unix://{BUREAU_VALKEY_SOCKET}"

CELERY_BROKER_URL = _broker(REDIS_URL)
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # How long an unacknowledged message is believed to be in good hands. Ours only say "look at the
    # rows", and the sweep says so again within seconds; so none has to come back early, and a longer
    # time than any message waits in a worker means that none is delivered twice for nothing.
    "visibility_timeout": 3600,
    # A request that rings the doorbell must not wait for a Redis that is gone.
    "socket_connect_timeout": 1,
    "socket_timeout": 3,
    "retry_on_timeout": False,
    "max_retries": 0,
}
CELERY_BROKER_CONNECTION_TIMEOUT = 1
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_TASK_PUBLISH_RETRY = False
CELERY_TASK_DEFAULT_QUEUE = "default"
# With early acknowledgement a busy worker would reserve one more message per slot, while another is idle.
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_STORE_ERRORS_EVEN_IF_IGNORED = False
CELERY_RESULT_BACKEND = None
CELERY_ACCEPT_CONTENT = ["json"]
# One message per free slot: more would wait here while another worker is idle.
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# Nobody listens to these, and each costs a message per job.
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_TASK_SEND_SENT_EVENT = False
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_REDIRECT_STDOUTS = False
# Celery would close the database connection around every job, at three times the cost of the job;
# `bureau.celery` drops broken ones instead.
CELERY_DB_REUSE_MAX = 10**9
CELERY_BEAT_SCHEDULE = {
    "sweep": {
        "task": "tasks.sweep",
        "schedule": BUREAU_SWEEP_SECONDS,
        # While no worker is there they pile up; the first that comes needs to run only the latest.
        "options": {"expires": 2 * BUREAU_SWEEP_SECONDS},
    },
    # Tasks at remote agents: each has a time of its own, and a round without any is two queries.
    "follow": {"task": "agents.follow", "schedule": 1.0, "options": {"expires": 2.0}},
    "tidy": {"task": "agents.tidy", "schedule": 60.0, "options": {"expires": 120.0}},
    # Looks what is due; how often an agent is, its row says.
    "directory": {
        "task": "directory.tend",
        "schedule": min(10.0, BUREAU_PROBE_SECONDS, BUREAU_CARD_REFRESH_SECONDS),
        "options": {"expires": 60},
    },
    # In small bites: what one round leaves, the next one takes.
    "prune": {"task": "bureau.prune", "schedule": 600.0, "options": {"expires": 600}},
}

# --- Logs ---------------------------------------------------------------------------------------

LOGGING = logs.configuration(
    ENVIRONMENT[env.LOG_FORMAT],
    ENVIRONMENT[env.LOG_LEVEL],
    production=BUREAU_PRODUCTION,
    secrets=[SECRET_KEY, *ENVIRONMENT.secrets()],
)
