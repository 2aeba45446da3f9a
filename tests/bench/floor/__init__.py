"""The floors: the least a durable task on a worker fleet can cost with Django, Celery, PostgreSQL and Redis.

No protocol, no authentication, no models: one table of tasks, one of events, single statements. They are
bounds to compare with, not examples to follow.
"""
