"""Work in forked processes: results in order, what is large shared and not sent, errors and bounds kept."""

import os
from collections.abc import Iterator

import pytest

from pipeline.core.data.workers import AHEAD, map_forked


@pytest.mark.parametrize("processes", [1, 3])
def test_results_come_in_the_order_of_the_items_from_a_function_that_cannot_be_sent(processes: int) -> None:
    here, scale = os.getpid(), 3

    def scaled(item: int) -> tuple[int, bool]:
        return item * scale, os.getpid() == here

    found = list(map_forked(scaled, range(50), processes))
    assert [value for value, _ in found] == [3 * item for item in range(50)]
    assert {alone for _, alone in found} == {processes == 1}


def test_few_items_are_drawn_ahead_however_many_there_are() -> None:
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for item in range(1000):
            drawn.append(item)
            yield item

    results = map_forked(abs, items(), 2)
    assert next(results) == 0 and len(drawn) == 2 * AHEAD + 1
    results.close()


def test_an_error_in_a_worker_ends_in_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        list(map_forked(lambda item: 1 // item, [1, 0], 2))
