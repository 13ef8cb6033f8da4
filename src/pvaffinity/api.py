"""A thin client of the API server: plain dictionaries in and out, refusals as :class:`ApiError`.

Built on the official ``kubernetes`` client for kubeconfigs, credentials (exec plugins included) and TLS; requests are
made on its connection pool, so that the content type and the body on the wire are exactly the ones a test names.
Every write asks for strict field validation: a misspelt field is an error, not silence.
"""

from __future__ import annotations

__all__ = ["APPLY", "JSON_PATCH", "MERGE_PATCH", "STRATEGIC_PATCH", "TRANSPORT_ERRORS", "Api", "Response", "WatchStop"]

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import client, config

from pvaffinity import kubeconfig, proxies
from pvaffinity.credentials import Tokens, tokens_of
from pvaffinity.errors import ApiError
from pvaffinity.objects import KINDS, Obj, Ref, collection_path, ref_of
from pvaffinity.wire import TRANSPORT_ERRORS, Silence, WatchStop, decode, lines, patient, selectors

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Response:
    """What the server answered: HTTP status, decoded body and ``Warning`` headers."""

    code: int
    body: Obj
    warnings: tuple[str, ...]


class Api:
    """One identity's view of one API server. Safe to use from several threads.

    Args:
        api_client: a configured client of the ``kubernetes`` package.
        identity: who this is, for messages.
        labels: put on every object that :meth:`create` makes, so that it can be found again.
        tokens: where the token comes from, if it does not last.

    Attributes:
        silence: what is known where the server does not answer.
    """

    def __init__(
        self,
        api_client: client.ApiClient,
        identity: str = "admin",
        *,
        labels: Mapping[str, str] | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self._client = api_client
        self._pool: urllib3.PoolManager = api_client.rest_client.pool_manager
        self._labels = dict(labels or {})
        self._tokens = tokens
        self._once = False
        self.silence = Silence()
        self.identity = identity
        self.server: str = api_client.configuration.host

    @classmethod
    def from_kubeconfig(
        cls,
        path: Path,
        context: str | None = None,
        *,
        identity: str = "admin",
        labels: Mapping[str, str] | None = None,
    ) -> Api:
        """Connect with a kubeconfig file, which is only read.

        Raises:
            UserError: the file cannot be used, names no such context, or its credential plugin failed.
        """
        named = kubeconfig.read([path])
        document = named.only(context)
        entry = document["users"][0]["user"] if document["users"] else {}
        cluster = document["clusters"][0]["cluster"]
        tokens = tokens_of(entry, cluster)
        settings = client.Configuration()
        settings.connection_pool_maxsize = 64
        try:
            config.load_kube_config_from_dict(document, client_configuration=settings, persist_config=False)
            proxies.route(settings, cluster.get("proxy-url"))
            return cls(client.ApiClient(settings), identity, labels=labels, tokens=tokens)
        except (config.ConfigException, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
            raise named.unusable((str(error) or repr(error)).splitlines()[0]) from error

    @property
    def configuration(self) -> client.Configuration:
        """Server, trust and credentials, as the ``kubernetes`` package has them."""
        return self._client.configuration

    def once(self) -> Api:
        """The same client without second tries: for whoever measures when a request is sent."""
        made = copy.copy(self)
        made._once = True
        return made

    def _send(self, method: str, url: str, headers: Mapping[str, str], **options: Any) -> urllib3.BaseHTTPResponse:
        """One request with the credentials of this moment; a token that is refused is renewed once."""
        token = self._tokens.current() if self._tokens else ""
        with self.silence.broken():
            answer = self._pool.request(method, url, headers=self._headers(token, headers), retries=False, **options)
        if answer.status == 401 and self._tokens and self._tokens.refused(token):
            answer.drain_conn()
            again = self._headers(self._tokens.current(), headers)
            answer = self._pool.request(method, url, headers=again, retries=False, **options)
        return answer

    def _headers(self, token: str = "", more: Mapping[str, str] | None = None) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "pvaffinity", **(more or {})}
        if token:
            headers["authorization"] = f"Bearer {token}"
        else:
            self._client.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
        return headers

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        repeatable: bool = False,
    ) -> Response:
        """Send one request; ``timeout`` is in seconds and bounds the whole answer.

        Tried again is what the server did not begin, and what is ``repeatable`` where no answer came: reads, deletions,
        dry runs, and what a caller says is (:func:`pvaffinity.wire.patient`).

        Raises:
            ApiError: the server refused; code, reason and causes are the server's.
        """
        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Content-Type": content_type} if body is not None else {}
        repeatable = repeatable or method in ("GET", "DELETE") or "dryRun" in (query or {})
        data = None if body is None else json.dumps(body).encode()
        answer = self._answer(method, url, headers, data, timeout, repeatable=repeatable)
        return Response(answer.status, decode(answer.data), tuple(answer.headers.getlist("Warning")))

    def _answer(
        self, method: str, url: str, headers: Mapping[str, str], data: bytes | None, timeout: float, *, repeatable: bool
    ) -> urllib3.BaseHTTPResponse:
        for attempt in patient(repeatable=repeatable, once=self._once):
            with attempt:
                answer = self._send(method, url, headers, body=data, timeout=timeout)
                if answer.status >= 400:
                    raise ApiError.from_status(answer.status, decode(answer.data))
        return answer

    def get(self, ref: Ref) -> Obj:
        """Read one object.

        Raises:
            ApiError: 404 NotFound among others.
        """
        return self.request("GET", ref.path).body

    def text(self, path: str, *, timeout: float = 30.0) -> str:
        """GET something that is no JSON object, such as ``/metrics``; ``timeout`` in seconds.

        Raises:
            ApiError: the server refused.
        """
        answer = self._answer("GET", f"{self.server}{path}", {"Accept": "*/*"}, None, timeout, repeatable=True)
        return answer.data.decode(errors="replace")

    def find(self, ref: Ref) -> Obj | None:
        """Read one object, or None where the server says 404."""
        try:
            return self.get(ref)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def snapshot(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        timeout: float = 30.0,
    ) -> tuple[list[Obj], str]:
        """:meth:`list` and the resourceVersion to watch from; ``timeout`` in seconds."""
        path = collection_path(kind, namespace)
        body = self.request("GET", path, query=selectors(labels, fields), timeout=timeout).body
        stamp = {"apiVersion": KINDS[kind].api_version, "kind": kind}
        return [{**stamp, **item} for item in body.get("items") or ()], body["metadata"]["resourceVersion"]

    def list(
        self, kind: str, namespace: str | None = None, *, labels: str | None = None, fields: str | None = None
    ) -> list[Obj]:
        """Read a collection; every item carries its kind and apiVersion (the server omits them in lists)."""
        return self.snapshot(kind, namespace, labels=labels, fields=fields)[0]

    def create(self, obj: Mapping[str, Any], **query: str) -> Obj:
        """POST a whole object (kind, metadata.name and, where namespaced, metadata.namespace are needed)."""
        metadata = obj["metadata"]
        path = collection_path(obj["kind"], metadata.get("namespace"))
        whole = {"apiVersion": KINDS[obj["kind"]].api_version, **obj}
        if self._labels:
            whole["metadata"] = {**metadata, "labels": {**(metadata.get("labels") or {}), **self._labels}}
        return self.request("POST", path, whole, query={"fieldValidation": "Strict", **query}).body

    def replace(self, obj: Mapping[str, Any], **query: str) -> Response:
        """PUT a whole object; without ``metadata.resourceVersion`` it overwrites (PVs allow unconditional update)."""
        return self.request("PUT", ref_of(obj).path, dict(obj), query={"fieldValidation": "Strict", **query})

    def patch(
        self, ref: Ref, body: Any, content_type: str = MERGE_PATCH, subresource: str = "", **query: str
    ) -> Response:
        """PATCH one object with the given patch type (see the constants of this module)."""
        path = ref.path + (f"/{subresource}" if subresource else "")
        options = {"fieldValidation": "Strict", **query}
        return self.request("PATCH", path, body, content_type=content_type, query=options)

    def delete(self, ref: Ref, *, grace_seconds: int | None = None, propagation: str = "Background") -> bool:
        """Ask for deletion; False where the object was already gone."""
        options: Obj = {"propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self.request("DELETE", ref.path, options)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    def watch(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        resource_version: str = "",
        labels: str | None = None,
        fields: str | None = None,
        seconds: int = 30,
        stop: WatchStop | None = None,
    ) -> Iterator[tuple[str, Obj]]:
        """Yield ``(type, object)`` until the server ends the stream, at the latest after ``seconds``.

        The end of a stream is no news about the object: look again. A stalled connection ends the stream a little
        after ``seconds`` instead of hanging. ``stop.close()`` from another thread ends it at once.

        Raises:
            ApiError: the server refused; 410 Expired asks for a new list.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, seconds)),
            **({"resourceVersion": resource_version} if resource_version else {}),
            **selectors(labels, fields),
        }
        answer = self._send(
            "GET",
            f"{self.server}{collection_path(kind, namespace)}?{urlencode(query)}",
            {},
            timeout=urllib3.Timeout(connect=10, read=seconds + 5),
            preload_content=False,
        )
        if stop is not None:
            stop.attach(answer)
        try:
            if answer.status >= 400:
                raise ApiError.from_status(answer.status, decode(answer.data))
            for line in lines(answer):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError.from_status(500, event["object"])
                if event["type"] != "BOOKMARK":
                    yield event["type"], event["object"]
        except (*TRANSPORT_ERRORS, ValueError, AttributeError):
            return  # a cut or closed connection: the caller looks again
        finally:
            answer.close()  # first: a connection with unread events must not be used again
            answer.release_conn()
