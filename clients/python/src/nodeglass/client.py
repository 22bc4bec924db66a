"""The client of a relay's HTTP API."""

import json
import ssl
from dataclasses import replace
from datetime import datetime, timezone
from difflib import get_close_matches
from typing import Any, Dict, Iterable, Iterator, List, Optional, Type, TypeVar, Union
from urllib.parse import quote

from . import _discover, _watch, models
from ._decode import decode, parse
from ._transport import Query, Transport
from .errors import AuthenticationError, NodeglassError, NotFoundError, ProtocolError, RelayUnavailableError
from .history import History

Moment = Union[str, int, float, datetime]
"""A time: a `datetime`, seconds since 1970, RFC 3339, or an age such as `"90m"`."""
JobId = Union[int, str]
"""A job: its raw id, or as SLURM prints it: `"48440_16"`, `"48511+0"`. The id of an array means all of its tasks in a
filter."""
Names = Union[str, Iterable[str]]
"""One name, or several."""

T = TypeVar("T")

LISTED_NAMES = 5
"""Number of jobs or nodes that an error names."""


class Client:
    """A connection to a relay.

    Without arguments it is the relay of `NODEGLASS_URL` and `NODEGLASS_KEY`, or else the one that is running on this
    machine, found by its private runtime directory. `url` may be a whole link, as `relay link` prints it, or an
    address with a separate `key`: the owner's, a share's `ID.KEY`, or a token of `relay token create`.

    `timeout` limits connecting and each wait for data, in seconds; a response that keeps coming may take longer. The
    client may be used from several threads, and after a fork.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        key: Optional[str] = None,
        *,
        pid: Optional[int] = None,
        timeout: float = 10.0,
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        self._choice = (url, key, pid)
        self._timeout = timeout
        self._tls = tls
        self._transport = Transport(_discover.find(url, key, pid), timeout, tls)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        """Without the key."""
        return f"Client({str(self._transport.address)!r})"

    def close(self) -> None:
        """Closes the idle connection; a later request opens another."""
        self._transport.close()

    # State

    def snapshot(self) -> models.Snapshot:
        """Jobs, nodes, GPUs and processes of one moment."""
        return self._get(models.Snapshot, "/api/v1/snapshot")

    def jobs(
        self,
        *,
        user: Optional[str] = None,
        state: Optional[str] = None,
        partition: Optional[str] = None,
        node: Optional[str] = None,
    ) -> List[models.Job]:
        """The jobs that match all filters, running ones first."""
        query = {"user": user, "state": state, "partition": partition, "node": node}
        return self._known(self._list(models.Job, "jobs", query), node=node)

    def job(self, job: JobId) -> models.Job:
        """A job by its id: `48461`, an array's task `"48440_16"`, or a component `"48511+0"`."""
        return self._get(models.Job, f"/api/v1/jobs/{_job(job)}")

    def nodes(self, *, job: Optional[JobId] = None, connection: Optional[str] = None) -> List[models.Node]:
        """The nodes that match all filters, by name. `connection` is `live`, `late`, `silent`, `down`, `refused`, …"""
        return self._known(self._list(models.Node, "nodes", {"job": job, "connection": connection}), job=job)

    def node(self, node: str) -> models.Node:
        """A node by its name."""
        try:
            return self._get(models.Node, f"/api/v1/nodes/{quote(node, safe='')}")
        except NotFoundError as error:
            raise self._unknown_node(node) or error from None

    def gpus(
        self,
        *,
        job: Optional[JobId] = None,
        node: Optional[str] = None,
        vendor: Optional[str] = None,
        free: Optional[bool] = None,
    ) -> List[models.Gpu]:
        """The GPUs and MIG instances that match all filters, by node and index. A GPU is free if it can be read,
        belongs to no job, and has no processes."""
        query = {"job": job, "node": node, "vendor": vendor, "free": free}
        return self._known(self._list(models.Gpu, "gpus", query), job, node)

    def gpu(self, uuid: str) -> models.Gpu:
        """A GPU or MIG instance by its UUID."""
        return self._get(models.Gpu, f"/api/v1/gpus/{quote(uuid, safe='')}")

    def processes(
        self,
        *,
        job: Optional[JobId] = None,
        node: Optional[str] = None,
        gpu: Optional[str] = None,
        user: Optional[str] = None,
    ) -> List[models.Process]:
        """The processes that match all filters: an entry per process and GPU."""
        query = {"job": job, "node": node, "gpu": gpu, "user": user}
        return self._known(self._list(models.Process, "processes", query), job, node)

    def findings(
        self,
        *,
        job: Optional[JobId] = None,
        node: Optional[str] = None,
        kind: Optional[str] = None,
        severity: Optional[str] = None,
        active: Optional[bool] = None,
    ) -> List[models.Finding]:
        """The findings that match all filters: active ones, the worst first, then those that ended within the last
        hour. `severity` is the least: `info`, `warning` or `error`."""
        query = {"job": job, "node": node, "kind": kind, "severity": severity, "active": active}
        return self._known(self._list(models.Finding, "findings", query), job, node)

    def silences(self) -> List[models.Silence]:
        """What is silenced. Needs the owner's key."""
        listed = self.get("/api/v1/silences")
        if not isinstance(listed, list):
            raise ProtocolError("expected a list of silences; the relay may be of another version")
        return [decode(models.Silence, one) for one in listed]

    def status(self) -> models.StatusReport:
        """How the relay itself is doing; not for shares."""
        return self._get(models.StatusReport, "/status")

    def watch(
        self,
        *,
        job: Optional[JobId] = None,
        node: Optional[str] = None,
        interval: float = 1.0,
        reconnect_for: float = 60.0,
    ) -> Iterator[models.Snapshot]:
        """Yields a snapshot, and another after each change, at most one per `interval` in seconds.

        With `job` or `node`, a snapshot has only what concerns it, and is empty once that has left. The iterator
        reconnects, also to a relay that was restarted, and raises `RelayUnavailableError` after `reconnect_for` seconds
        without one. Closing it ends the connection.
        """
        if job is not None and node is not None:
            raise ValueError("choose a job or a node, not both")
        number = self.job(job).id if isinstance(job, str) else job
        return _watch.watch(self, number, node, interval, reconnect_for)

    # What is kept of jobs

    def history(
        self,
        metric: Names = "util_pct",
        *,
        job: Optional[JobId] = None,
        node: Optional[str] = None,
        start: Moment = "1h",
        end: Optional[Moment] = None,
        step: Union[str, int, None] = None,
        host_metric: Names = (),
    ) -> History:
        """Minimum, mean and maximum of metrics of the GPUs of a job, of a node with its host, or of everything.

        `step` is the length of a step in seconds, or such as `"60s"`, at least 10 s. It is longer where the range has
        too many steps, or only longer ones are kept.
        """
        query = {
            "job": job,
            "node": node,
            "metric": _names(metric),
            "host_metric": _names(host_metric),
            "from": _moment(start),
            "to": None if end is None else _moment(end),
            "step": step,
        }
        asked = [name for names in (query["metric"], query["host_metric"]) for name in str(names or "").split(",")]
        found = self._get(History, "/api/v1/history", query)
        return replace(found, metrics=[name.strip() for name in asked if name.strip()])

    def report(self, job: JobId) -> models.Report:
        """What a job did with what it was given, also after it has ended."""
        return self._get(models.Report, f"/api/v1/jobs/{_job(job)}/report")

    def usage(self, days: int = 30) -> models.Usage:
        """What all of the owner's jobs of the last days used; not for shares."""
        return self._get(models.Usage, "/api/v1/usage", {"days": days})

    def faults(self, *, node: Optional[str] = None, days: int = 30) -> List[models.NodeFault]:
        """What was found of nodes and their GPUs during the jobs of the last days, the worst first; not for shares."""
        return self._list(models.NodeFault, "faults", {"node": node, "days": days})

    # Notes

    def notes(self, *, job: Optional[JobId] = None) -> List[models.Note]:
        """The notes, by time."""
        listed = self.get("/api/v1/notes", {"job": job})
        if not isinstance(listed, list):
            raise ProtocolError("expected a list of notes; the relay may be of another version")
        return [decode(models.Note, one) for one in listed]

    def note(
        self,
        text: str,
        *,
        job: Optional[JobId] = None,
        node: Optional[str] = None,
        at: Optional[datetime] = None,
    ) -> models.Note:
        """Notes a moment of a job, a node, or without either of the whole cluster, in its graphs and reports. Needs
        the owner's key. Within a job, `nodeglass.note` needs no connection."""
        note: Dict[str, Any] = {"text": text, "source": "api"}
        if job is not None:
            note["job"] = self._only(int(job)) if str(job).isdecimal() else self.job(job).id
        if node is not None:
            note["node"] = node
        if at is not None:
            note["at_ms"] = round(_aware(at).timestamp() * 1000)
        body = json.dumps(note).encode()
        return decode(models.SavedNote, parse(self._transport.request("POST", "/api/v1/notes", None, body))).note

    def _only(self, job: int) -> int:
        """The raw id of a job, unless it is that of an array or a heterogeneous job."""
        parents = [(one, one.array or one.het) for one in self.jobs()]
        parts = [one for one, parent in parents if one.id == job or (parent is not None and parent.job == job)]
        if len(parts) > 1:
            raise ValueError(f"{job} has {len(parts)} jobs in the list; choose one, such as {parts[0].label!r}")
        return job

    def delete_note(self, note: int) -> None:
        """Deletes a note by its id. Needs the owner's key."""
        self._transport.request("DELETE", f"/api/v1/notes/{note:d}")

    # Everything else

    def get(self, path: str, query: Optional[Query] = None) -> Any:
        """The JSON of any path of the API, such as `/api/v1/gpus` with `{"fields": "uuid,readings.util_pct"}`."""
        if not path.startswith("/"):
            raise ValueError(f"the path must begin with /, not {path!r}")
        return parse(self._request(path, query))

    def _get(self, cls: Type[T], path: str, query: Optional[Query] = None) -> T:
        return decode(cls, self.get(path, query))

    def _list(self, cls: Type[T], name: str, query: Query) -> List[T]:
        answer = self.get(f"/api/v1/{name}", query)
        listed = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(listed, list):
            raise ProtocolError(f"expected a list of {name}; the relay may be of another version")
        return [decode(cls, one) for one in listed]

    def _known(self, found: List[T], job: Optional[JobId] = None, node: Optional[str] = None) -> List[T]:
        """What was found of a job and a node. A list that is empty because one of them is wrong would look like an idle
        one."""
        error = None
        if not found and job is not None:
            error = self._unknown_job(job)
        if not found and node is not None:
            error = error or self._unknown_node(node)
        if error is not None:
            raise error
        return found

    def _unknown_job(self, job: JobId) -> Optional[NotFoundError]:
        """That a job is not listed, with those that are; `None` if it is."""
        try:
            self.job(job)
        except NotFoundError:
            labels = [one.label for one in self.jobs()]
            return NotFoundError(f"the relay lists no job {job}{_instead(str(job), labels, 'lists')}", 404)
        except NodeglassError as error:
            # The id of an array means several jobs.
            if error.status != 400:
                raise
        return None

    def _unknown_node(self, node: str) -> Optional[NotFoundError]:
        """That a node is not watched, with those that may be meant; `None` if it is watched."""
        names = [one.name for one in self.nodes()]
        if node in names:
            return None
        short = node.partition(".")[0]
        hint = f"; did you mean {short}?" if short in names else _instead(short, names, "watches")
        return NotFoundError(f"the relay watches no node {node}{hint}", 404)

    def _request(self, path: str, query: Optional[Query]) -> bytes:
        try:
            return self._transport.request("GET", path, query)
        except (AuthenticationError, RelayUnavailableError):
            if not self.rediscover():
                raise
            return self._transport.request("GET", path, query)

    def rediscover(self) -> bool:
        """Finds the relay again, which has a new key and maybe a new port after a restart. Returns whether it is
        another than before; a stated `url` stays."""
        url, key, pid = self._choice
        if url is not None or pid is not None:
            return False
        try:
            address = _discover.find(url, key, pid)
        except Exception:
            # The error of the request says more.
            return False
        if address == self._transport.address:
            return False
        self._transport.close()
        self._transport = Transport(address, self._timeout, self._tls)
        return True


def _instead(name: str, known: List[str], verb: str) -> str:
    """Which of the known names may be meant, or which there are."""
    close = get_close_matches(name, known, 3)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    rest = "" if len(known) <= LISTED_NAMES else f" and {len(known) - LISTED_NAMES} more"
    return f"; it {verb} {', '.join(known[:LISTED_NAMES])}{rest}" if known else ""


def _job(job: JobId) -> str:
    """A job as a part of a path."""
    return quote(str(job), safe="")


def _names(names: Names) -> Optional[str]:
    return (names if isinstance(names, str) else ",".join(names)) or None


def _moment(moment: Moment) -> str:
    if isinstance(moment, datetime):
        return _aware(moment).astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return str(round(moment)) if isinstance(moment, (int, float)) else moment


def _aware(moment: datetime) -> datetime:
    """A naive time is local, as everywhere in Python."""
    return moment.astimezone() if moment.tzinfo is None else moment
