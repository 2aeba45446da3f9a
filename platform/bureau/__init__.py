"""The Django project of Bureau: settings, delivery (A2A, pages, commands) and the process tree."""
