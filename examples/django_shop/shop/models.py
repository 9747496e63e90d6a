"""Orders."""

from django.db import models


class Order(models.Model):
    """An order: placed by a view, shipped by a task."""

    item = models.CharField(max_length=50)
    status = models.CharField(max_length=20, default="new")
    shipped_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.item} ({self.status})"
