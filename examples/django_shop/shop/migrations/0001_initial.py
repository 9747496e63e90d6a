"""The first tables."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Creates the table of orders."""

    initial = True
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("item", models.CharField(max_length=50)),
                ("status", models.CharField(default="new", max_length=20)),
                ("shipped_at", models.DateTimeField(null=True)),
            ],
        ),
    ]
