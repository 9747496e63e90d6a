"""Placing orders. Inside `atomic()`, the order and its job are there together or not at all."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404

from shop.models import Order
from shop.tasks import greet, ship


def buy(request: HttpRequest) -> JsonResponse:
    """Place an order, and have it shipped."""
    with transaction.atomic():
        order = Order.objects.create(item=request.GET["item"])
        job = ship.enqueue(order.pk)
        if "declined" in request.GET:
            transaction.set_rollback(True)
    return JsonResponse({"order": order.pk, "job": job.id})


async def buy_async(request: HttpRequest) -> JsonResponse:
    """The same for an async view, without a transaction around both."""
    order = await Order.objects.acreate(item=request.GET["item"])
    job = await greet.enqueue_async(order.pk)
    return JsonResponse({"order": order.pk, "job": job.id})


def order(_request: HttpRequest, order_id: int) -> JsonResponse:
    """How an order stands."""
    return JsonResponse({"status": get_object_or_404(Order, pk=order_id).status})
