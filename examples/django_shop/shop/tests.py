"""The shop's tests: what was enqueued is seen inside a TestCase; a TransactionTestCase runs it."""

from django.test import TestCase, TransactionTestCase

from penstock.django import app
from penstock.testing import assert_enqueued, assert_enqueued_async, drain
from shop.models import Order
from shop.tasks import fulfil, greet, send_receipt, ship


class EnqueueTests(TestCase):
    """In the transaction of the test, which is rolled back."""

    def test_an_order_is_to_be_shipped(self) -> None:
        placed = self.client.get("/buy?item=tea").json()
        (job,) = assert_enqueued(app, ship, placed["order"])
        self.assertEqual(job.status, "available")

    def test_nothing_is_left_of_a_declined_order(self) -> None:
        self.client.get("/buy?item=tea&declined=1")
        assert_enqueued(app, ship, count=0)
        self.assertEqual(Order.objects.count(), 0)

    async def test_an_async_view_enqueues_in_the_transaction_too(self) -> None:
        placed = (await self.async_client.get("/buy-async?item=tea")).json()
        await assert_enqueued_async(app, greet, placed["order"])

    def test_a_receipt_of_django_tasks(self) -> None:
        order = Order.objects.create(item="tea")
        result = send_receipt.enqueue(order.pk, "ann@example.com")
        self.assertEqual(result.status, "READY")
        self.assertEqual(send_receipt.get_result(result.id).args, [order.pk, "ann@example.com"])

    def test_each_test_begins_with_nothing(self) -> None:
        for task in (ship, greet):
            assert_enqueued(app, task, count=0)


class WorkTests(TransactionTestCase):
    """With real transactions, so that `drain` sees what was committed."""

    def test_an_order_is_shipped(self) -> None:
        placed = self.client.get("/buy?item=tea").json()
        self.assertEqual(drain(app), 1)
        self.assertEqual(self.client.get(f"/orders/{placed['order']}").json(), {"status": "shipped"})

    def test_an_order_is_fulfilled(self) -> None:
        order = Order.objects.create(item="tea")
        run = fulfil.trigger(order.pk)
        drain(app)
        self.assertEqual(run.result(timeout=0), "thank you for ordering tea")

    def test_a_receipt_is_sent(self) -> None:
        order = Order.objects.create(item="tea")
        result = send_receipt.enqueue(order.pk, "ann@example.com")
        drain(app)
        result.refresh()
        self.assertEqual((result.status, result.return_value), ("SUCCESSFUL", 1))

    def test_each_test_begins_with_nothing(self) -> None:
        self.assertEqual(drain(app), 0)
