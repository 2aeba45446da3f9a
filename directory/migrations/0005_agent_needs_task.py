from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("directory", "0004_api_client_scopes"),
    ]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="needs_task",
            field=models.BooleanField(
                default=True,
                db_default=True,
                help_text="If not, what it says at once is answered as a bare message, without a task.",
            ),
        ),
    ]
