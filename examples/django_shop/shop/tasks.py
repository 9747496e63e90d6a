"""The shop's work in the background. Every app's `tasks.py` is found by itself."""

from django.core.mail import send_mail
from django.utils import timezone

from penstock.django import app
from shop.models import Order

try:
    from django.tasks import task
except ImportError:  # Django 5.2: pip install django-tasks
    from django_tasks import task


@app.task(retries=5)
def ship(order_id: int) -> str:
    """A `def` task runs in a thread, with a healthy connection of Django's."""
    order = Order.objects.get(pk=order_id)
    order.status, order.shipped_at = "shipped", timezone.now()
    order.save()
    return f"shipped {order.item}"


@app.task(retries=5)
async def greet(order_id: int) -> str:
    """An `async def` task runs on the event loop, and uses the ORM's async methods."""
    order = await Order.objects.aget(pk=order_id)
    return f"thank you for ordering {order.item}"


@task
def send_receipt(order_id: int, address: str) -> int:
    """A task of django.tasks, which any backend can run; Penstock's survives the death of its worker."""
    order = Order.objects.get(pk=order_id)
    return send_mail("Your order", f"We have sent {order.item}.", "shop@example.com", [address])


@app.pipeline
def fulfil(order_id: int) -> str:
    """Ship, then say thank you, as one run that survives crashes."""
    shipped = ship(order_id)
    return greet.options(after=[shipped])(order_id)


@app.task
def remind_about_unsent() -> int:
    """How many orders wait."""
    return Order.objects.filter(status="new").count()


remind_about_unsent.schedule("0 8 * * *", tz="Europe/Berlin", name="unsent-orders")
