"""What stands between may do anything to an answer: the published client sees it by this API, and ours sees it by REST.

Either way the request did reach the service, so no error here may be marked: a mark would invite a second execution.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import plimsoll
from plimsoll.client import errors
from tests.integration.connect.conftest import Served
from tests.integration.connect.published import javascript, judge
from tests.support import tamper

pytestmark = pytest.mark.component("wasm")
published = pytest.mark.component("published-client")

TWO = ("console.log('first')", "console.log('second')")
FLOOR = "process"
EXIT_CODE = rb'("exit_?[cC]ode"): ?0', rb"\1:7"

Make = Callable[[], tamper.Tamper]
Rebound = dict[str, bool]

SINGLE: dict[str, tuple[Make, str, type[errors.PlimsollError]]] = {
    "drops the id": (lambda: tamper.drops_id, "AnswerNotBoundError", errors.AnswerNotBound),
    "alters bytes": (lambda: tamper.alters(*EXIT_CODE), "RecordMismatchError", errors.RecordMismatch),
    "alters the wall": (
        lambda: tamper.alters(rb'"isolation":"process"', b'"isolation":"vm"'),
        "RecordMismatchError",
        errors.RecordMismatch,
    ),
    "redirects": (lambda: tamper.redirects, "PlimsollError", errors.RedirectRefused),
    "trickles": (lambda: tamper.trickles(0.05), "RequestTimeoutError", errors.RequestTimeout),
    "cuts": (lambda: tamper.cuts, "MalformedResponseError", errors.TransportError),
}


@published
@pytest.mark.parametrize("name", SINGLE)
def test_the_published_client_is_not_fooled(name: str, served: Served) -> None:
    make, kind, _ = SINGLE[name]
    with tamper.proxy(served.url, make()) as between:
        (outcome,) = judge(between.url, served.token, javascript(TWO[0]), request_timeout=1.5)
    assert outcome.verdict == (kind, None)
    assert [request.target for request in between.requests] == ["/plimsoll.v1.SandboxService/Run"]


@pytest.mark.parametrize("name", SINGLE)
def test_our_client_is_not_fooled(name: str, served: Served) -> None:
    make, _, kind = SINGLE[name]
    with tamper.proxy(served.url, make()) as between:
        error = refused(between.url, served.token, TWO[0])
    assert (type(error), error.not_dispatched) == (kind, None)
    assert [request.target for request in between.requests] == ["/v1/runs"]


def refused(url: str, token: str, code: str) -> errors.PlimsollError:
    with plimsoll.Client(url, token, deadline=1.5) as client, pytest.raises(errors.PlimsollError) as caught:
        client.run_javascript(code)
    return caught.value


SWAPPED = pytest.mark.parametrize(
    ("how", "theirs", "ours"),
    [
        ({}, "AnswerNotBoundError", errors.AnswerNotBound),
        ({"rebound": True}, "RecordMismatchError", errors.RecordMismatch),
    ],
    ids=["as they are", "under the id expected"],
)


@published
@SWAPPED
def test_the_published_client_sees_swapped_answers(
    how: Rebound, theirs: str, ours: type, served: Served
) -> None:
    with tamper.proxy(served.url, tamper.swaps(**how)) as between:
        outcomes = judge(between.url, served.token, *map(javascript, TWO), parallel=True)
    assert [outcome.verdict for outcome in outcomes] == [(theirs, None)] * 2


@SWAPPED
def test_our_client_sees_swapped_answers(how: Rebound, theirs: str, ours: type, served: Served) -> None:
    with tamper.proxy(served.url, tamper.swaps(**how)) as between, ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda code: refused(between.url, served.token, code), TWO))
    assert [(type(error), error.not_dispatched) for error in found] == [(ours, None)] * 2


@published
def test_the_published_client_sees_an_old_answer(served: Served) -> None:
    with tamper.proxy(served.url, tamper.replays()) as between:
        first, again = judge(between.url, served.token, javascript(TWO[0]), javascript(TWO[0]))
    assert first.stdout == b"first\n"
    assert again.verdict == ("AnswerNotBoundError", None)
    with tamper.proxy(served.url, tamper.replays(rebound=True)) as between:
        _, other = judge(between.url, served.token, *map(javascript, TWO))
    assert other.verdict == ("RecordMismatchError", None)


@pytest.mark.parametrize(
    ("how", "kind"),
    [({}, errors.AnswerNotBound), ({"rebound": True}, errors.StaleAnswer)],
    ids=["under its own id", "under the fresh id"],
)
def test_our_client_sees_an_old_answer_even_to_an_equal_request(
    how: Rebound, kind: type, served: Served
) -> None:
    with (
        tamper.proxy(served.url, tamper.replays(**how)) as between,
        plimsoll.Client(between.url, served.token) as client,
    ):
        assert client.run_javascript(TWO[0]).text == "first\n"
        with pytest.raises(errors.PlimsollError) as caught:
            client.run_javascript(TWO[0])
    assert (type(caught.value), caught.value.not_dispatched) == (kind, None)


@published
def test_an_old_refusal_is_no_proof_that_the_next_request_did_not_run(served: Served) -> None:
    floor, plain = javascript("1", minimum_isolation="kernel"), javascript("1")
    with tamper.proxy(served.url, tamper.replays()) as between:
        first, again = judge(between.url, served.token, floor, plain)
    assert first.verdict == ("InsufficientIsolationError", "isolation")
    assert again.error["not_dispatched"] is None
    assert again.error["answer_not_bound"] is True


@published
def test_an_honest_intermediary_changes_nothing(served: Served) -> None:
    with (
        tamper.proxy(served.url, tamper.honest) as between,
        plimsoll.Client(between.url, served.token) as ours,
    ):
        (theirs,) = judge(between.url, served.token, javascript(TWO[0], minimum_isolation=FLOOR))
        assert theirs.stdout == b"first\n"
        assert ours.run_javascript(TWO[0], floor=FLOOR).text == "first\n"
