"""The real ``kubectl`` as a sub-process, and its error text turned back into the ``Status`` it was made from.

kubectl prints a refusal in one of three forms (k8s.io/kubectl pkg/cmd/util/helpers.go, ``checkErr``):
``The PersistentVolume "x" is invalid: field: body``, the same with one bulleted line a cause, or
``Error from server (Reason): message``.
"""

from __future__ import annotations

__all__ = ["Completed", "Kubectl", "KubectlError", "parse_refusal"]

import json
import os
import re
import shutil
import subprocess
import weakref
from dataclasses import dataclass
from pathlib import Path

from pvaffinity.errors import ApiError, Cause, UserError
from pvaffinity.objects import Obj
from pvaffinity.outcomes import Accepted, Outcome, Refused, refused_as
from pvaffinity.paths import scratch_dir

_CODES = {
    "AlreadyExists": 409,
    "BadRequest": 400,
    "Conflict": 409,
    "Expired": 410,
    "Forbidden": 403,
    "Gone": 410,
    "InternalError": 500,
    "Invalid": 422,
    "MethodNotAllowed": 405,
    "NotFound": 404,
    "ServiceUnavailable": 503,
    "Timeout": 504,
    "TooManyRequests": 429,
    "Unauthorized": 401,
    "UnsupportedMediaType": 415,
}
"""HTTP status of a ``Status`` reason (k8s.io/apimachinery pkg/apis/meta/v1/types.go)."""

_CAUSES = {
    "Duplicate value": "FieldValueDuplicate",
    "Forbidden": "FieldValueForbidden",
    "Internal error": "InternalError",
    "Invalid value": "FieldValueInvalid",
    "Not found": "FieldValueNotFound",
    "Required value": "FieldValueRequired",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
    "Unsupported value": "FieldValueNotSupported",
}
"""Cause reason of the words a field error starts with (pkg/util/validation/field/errors.go, ``ErrorType.String``)."""

_CAUSE = re.compile(rf"(?:\* )?(?P<field>[^\s:]+): (?P<message>(?P<words>{'|'.join(_CAUSES)})\b.*)\Z", re.DOTALL)
_INVALID = re.compile(r"The (?:\S+ \"[^\"]*\"|request) is invalid(?:: ?(?P<rest>.*))?\Z", re.DOTALL)
_SERVER = re.compile(r"(?:error: )?Error from server \((?P<reason>\w+)\): (?P<message>.*)\Z", re.DOTALL)
_ASIDE = re.compile(r"Warning: |[IWEF][0-9]{4} [0-9:.]+ ")  # the server's warnings, kubectl's own log
_LOGIN = "error: You must be logged in to the server"
_NOT_ASKED = "Unable to connect to the server: net/http: TLS handshake timeout"  # client-go's, after 10 s
_TRIES = 3


class KubectlError(Exception):
    """kubectl failed before or without an answer of the server."""


@dataclass(frozen=True)
class Completed:
    """A finished kubectl: its arguments, exit code and output."""

    args: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    @property
    def warnings(self) -> tuple[str, ...]:
        """The server's warnings, which kubectl prints with the prefix ``Warning:``."""
        lines = self.stderr.splitlines()
        return tuple(line.removeprefix("Warning: ") for line in lines if line.startswith("Warning: "))

    @property
    def object(self) -> Obj:
        """The decoded output of a command that ran with ``-o json``."""
        decoded: Obj = json.loads(self.stdout)
        return decoded

    @property
    def outcome(self) -> Outcome:
        """What the server made of it; needs ``-o json``.

        Raises:
            KubectlError: there was no answer of the server, or none that this module can read.
            ApiError: the answer is no verdict, see :func:`pvaffinity.outcomes.refused_as`.
        """
        if self.code == 0:
            return Accepted(self.object, self.warnings)
        refused = parse_refusal(self.stderr)
        if refused is None:
            raise KubectlError(f"kubectl {' '.join(self.args)} exited with {self.code}: {self.stderr.strip()[-2000:]}")
        return refused_as(ApiError(refused.code, refused.reason, refused.message, list(refused.causes)))


class Kubectl:
    """Runs one kubectl binary with one kubeconfig; never the user's own, and no file of the user's is written.

    Args:
        binary: the kubectl to run.
        kubeconfig: whose credentials it takes.
    """

    def __init__(self, binary: Path, kubeconfig: Path) -> None:
        self.binary = binary
        self.kubeconfig = kubeconfig
        self._cache = str(scratch_dir("kubectl"))
        weakref.finalize(self, shutil.rmtree, self._cache, ignore_errors=True)

    def run(self, *args: str, input: str = "", timeout: float = 60.0) -> Completed:  # noqa: A002
        """Run ``kubectl args`` with ``input`` on its standard input; ``timeout`` in seconds.

        It is run again where it never got as far as asking the server, which stood still.

        Raises:
            KubectlError: it did not end in time and was killed.
            UserError: there is no such binary.
        """
        # KUBERC: from 1.34 on a file in the home directory can change kubectl's defaults.
        environment = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"} | {"KUBERC": "off", "LC_ALL": "C"}
        command = [str(self.binary), f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self._cache}", *args]
        try:
            for _ in range(_TRIES):
                done = subprocess.run(
                    command,
                    input=input,
                    capture_output=True,
                    encoding="utf-8",
                    errors="replace",
                    timeout=timeout,
                    env=environment,
                    check=False,
                )
                if done.returncode == 0 or _NOT_ASKED not in done.stderr:
                    break
        except subprocess.TimeoutExpired as error:
            raise KubectlError(f"kubectl {' '.join(args)} did not end within {timeout:g} s") from error
        except OSError as error:
            raise UserError(
                f"kubectl cannot be run: {error}", "name a directory that has it, or: pvaffinity binaries fetch"
            ) from error
        return Completed(args, done.returncode, done.stdout, done.stderr)


def parse_refusal(stderr: str) -> Refused | None:
    """The server's refusal in kubectl's error output; None where it holds none (a connection error, for one).

    kubectl does not print the reason of a cause, only the words that stand for it, and leaves out repeated causes;
    both are undone or harmless, because causes are compared as a set.
    """
    text = "\n".join(line for line in stderr.splitlines() if not _ASIDE.match(line)).strip()
    if text.startswith(_LOGIN):
        return Refused(401, "Unauthorized", message=text)
    if found := _SERVER.match(text):
        reason = found["reason"]
        return Refused(_CODES.get(reason, 500), reason, message=found["message"])
    if found := _INVALID.match(text):
        return Refused(422, "Invalid", frozenset(_causes(found["rest"] or "")), text)
    return None


def _causes(text: str) -> list[Cause]:
    entries = re.split(r"^\* ", text, flags=re.MULTILINE)[1:] or [text]
    found = (_CAUSE.match(entry.strip()) for entry in entries)
    return [Cause(_CAUSES[cause["words"]], cause["field"], cause["message"]) for cause in found if cause]
