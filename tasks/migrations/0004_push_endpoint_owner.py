from typing import Any

from django.db import migrations, models


def forget(apps: Any, schema_editor: Any) -> None:
    """Rows of nobody in particular hold back nobody; whoever fails is noted anew."""
    apps.get_model("tasks", "PushEndpoint").objects.all().delete()


class Migration(migrations.Migration):
    dependencies = [
        ("tasks", "0003_push_notifications"),
    ]

    operations = [
        migrations.RunPython(forget, migrations.RunPython.noop),
        migrations.AddField(
            model_name="pushendpoint",
            name="owner",
            field=models.CharField(db_default="", default="", help_text="Whose pushes.", max_length=80),
        ),
        migrations.AlterField(
            model_name="pushendpoint",
            name="origin",
            field=models.CharField(help_text="Scheme, host and port.", max_length=300),
        ),
        migrations.AddConstraint(
            model_name="pushendpoint",
            constraint=models.UniqueConstraint(fields=("owner", "origin"), name="push_endpoint_once_per_owner"),
        ),
    ]
