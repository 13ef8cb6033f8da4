"""Which errors judge Kubernetes, and which answers are no verdict."""

from __future__ import annotations

import errno
import json

import pytest
import urllib3

from pvaffinity.errors import ApiError, Cause, UserError
from pvaffinity.judging import ITSELF, NotJudgedError, why_not_judged
from pvaffinity.kubectl import Completed, KubectlError
from pvaffinity.outcomes import FORBIDDEN, IMMUTABLE, Accepted, attempt
from pvaffinity.races.observe import SweepError, TooSlowError
from pvaffinity.waiting import NeverUnknown, NeverViolated, WaitTerminal, WaitTimeout, WaitUnknown

POLICY = "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: limits"
BY_ADMISSION = [
    ApiError(422, "Invalid", POLICY, [Cause("", "", "limits")]),
    ApiError(403, "Forbidden", POLICY),
    ApiError(400, "BadRequest", 'admission webhook "w.example.org" denied the request: no'),
    ApiError(403, "Forbidden", 'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: 1'),
    ApiError(403, "Forbidden", 'pods "p" is forbidden: failed quota: q: must specify limits.cpu for: reader'),
    ApiError(403, "Forbidden", 'pods "p" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes'),
    ApiError(403, "Forbidden", 'pods "p" is forbidden: maximum cpu usage per Container is 1, but limit is 2'),
    ApiError(403, "Forbidden", 'unable to create new content in namespace ns because it is being terminated'),
]  # fmt: skip
NO_VERDICT = [ApiError(code, "", "later") for code in (401, 429, 500, 502, 503, 504)] + BY_ADMISSION
RBAC = ApiError(
    403, "Forbidden", 'persistentvolumes "x" is forbidden: User "u" cannot patch resource "persistentvolumes"'
)
INVALID = ApiError(422, "Invalid", "no", [Cause("FieldValueInvalid", "nodeAffinity")])


def raised_from(cause: BaseException) -> BaseException:
    error = AssertionError("it did not work")
    error.__cause__ = cause
    return error


def refused_write(cause: BaseException) -> BaseException:
    error = SweepError("the server refused a write")
    error.__cause__ = cause
    return error


def beside(context: BaseException) -> BaseException:
    error = AssertionError("wrong answer")
    error.__context__ = context
    return error


@pytest.mark.parametrize(
    "error",
    [
        *NO_VERDICT,
        ConnectionRefusedError("refused"),
        ConnectionResetError("reset"),
        TimeoutError("late"),
        urllib3.exceptions.ReadTimeoutError(None, "", "late"),  # type: ignore[arg-type]
        urllib3.exceptions.NewConnectionError(None, "refused"),  # type: ignore[arg-type]
        UserError("no room", "make some"),
        WaitUnknown("not seen"),
        NeverUnknown("may have been"),
        KubectlError("exited with 1: Unable to connect to the server"),
        TooSlowError("too slow"),
        NotJudgedError("why"),
        OSError(errno.ENOSPC, "No space left on device"),
        raised_from(ConnectionResetError("reset")),
        raised_from(raised_from(UserError("no room", "make some"))),
        ExceptionGroup("two", [TimeoutError("late"), UserError("no room", "make some")]),
    ],
    ids=repr,
)
def test_what_is_no_answer_or_about_something_else_judges_nobody(error: BaseException) -> None:
    """Its reason is one line that is not empty."""
    why = why_not_judged(error)
    assert why
    assert "\n" not in why


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("stored is wrong"),
        WaitTimeout("was not running"),
        WaitTerminal("can no longer become running"),
        NeverViolated("was scheduled"),
        RBAC,
        INVALID,
        ApiError(404, "NotFound", "no"),
        ApiError(409, "Conflict", "no"),
        refused_write(INVALID),
        raised_from(ValueError("line 3 is damaged")),
        beside(ConnectionResetError("reset")),
        ExceptionGroup("two", [TimeoutError("late"), AssertionError("wrong")]),
    ],
    ids=repr,
)
def test_a_wrong_answer_is_a_judgement(error: BaseException) -> None:
    """Also beside something that was no answer, and where only part of a group is none."""
    assert why_not_judged(error) == ""


@pytest.mark.parametrize(
    "error",
    [
        KeyError("spec"),
        StopIteration(),
        json.JSONDecodeError("Expecting value", "{", 1),
        RuntimeError("can't start new thread"),
        OSError(errno.EIO, "Input/output error"),
        SweepError("no node matches: there is nothing to lose in this race"),
        refused_write(KeyError("resourceVersion")),
        ExceptionGroup("two", [KeyError("spec"), TimeoutError("late")]),
    ],
    ids=repr,
)
def test_a_fault_of_the_suites_own_accuses_nobody(error: BaseException) -> None:
    """Whatever is neither an assertion nor an answer is named as the suite's, with its kind."""
    why = why_not_judged(error)
    first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    assert why.startswith(f"{ITSELF}{type(first).__name__}")
    assert "\n" not in why


@pytest.mark.parametrize("error", NO_VERDICT, ids=str)
def test_no_verdict_is_no_outcome(error: ApiError) -> None:
    """What is compared is a verdict on the request: anything else is raised, not taken for a refusal."""

    def request() -> dict[str, str]:
        raise error

    with pytest.raises(ApiError) as caught:
        attempt(request)
    assert caught.value is error


@pytest.mark.parametrize(("error", "outcome"), [(RBAC, FORBIDDEN), (INVALID, IMMUTABLE)])
def test_what_rbac_and_validation_say_is_an_outcome(error: ApiError, outcome: object) -> None:
    """RBAC's 403 and validation's 422 are told from admission's by the message, and stay values."""

    def request() -> dict[str, str]:
        raise error

    assert attempt(request) == outcome
    assert attempt(dict) == Accepted({})


@pytest.mark.parametrize(
    "stderr",
    [
        "Error from server (ServiceUnavailable): later",
        "Error from server (InternalError): an error on the server",
        "The pods \"p\" is invalid: : ValidatingAdmissionPolicy 'p' with binding 'b' denied request: limits",
        f"Error from server (Forbidden): {POLICY}",
    ],
)  # fmt: skip
def test_kubectls_words_for_no_verdict_are_raised_too(stderr: str) -> None:
    """Kubectl prints the same answers in its own form."""
    with pytest.raises(ApiError) as caught:
        _ = Completed(("patch",), 1, "", stderr).outcome
    assert why_not_judged(caught.value)
