"""Server: makes this process a task of a cluster (TensorFlow 1's name)."""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
import weakref
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, TypeAlias

from tensorbow.cluster.cluster_spec import AsJobs, ClusterSpec, split_address
from tensorbow.cluster.connection import TOKEN_VARIABLE, Connection, accept, token_of
from tensorbow.cluster.run_limit import RunLimit, TimeLimit, Watch
from tensorbow.cluster.run_spans import TaskSpans
from tensorbow.cluster.task import ClusterTask
from tensorbow.cluster.task_step import Arrivals
from tensorbow.compiler import NeedsDynamicModeError
from tensorbow.errors import (
    AbortedError,
    FailedPreconditionError,
    InvalidArgumentError,
    TensorBowError,
    UnavailableError,
)
from tensorbow.graph import DEAD
from tensorbow.kinds import Count, Flag, Name, checked, one_of, optional
from tensorbow.runtime import AsConfig
from tensorbow.runtime.config_proto import warn_of_ignored
from tensorbow.specs import Array

_logger = logging.getLogger("tensorbow.cluster")

Protocol: TypeAlias = Annotated["str | None", optional(one_of("grpc", "tcp"))]

_here: weakref.WeakValueDictionary[str, ClusterTask] = (
    weakref.WeakValueDictionary()
)  # open ones, by incarnation
_tokens: dict[str, str] = {}  # by address of a server of this process


def task_here(incarnation: str) -> ClusterTask | None:
    """The task of this process with that incarnation, if there is one."""
    return _here.get(incarnation)


def token_for(address: str, token: str | None) -> str:
    """The token given, or that of a server of this process at that address, or the environment's."""
    return token_of(token) if token is not None else _tokens.get(address, token_of(None))


class Server:
    """A task of a cluster: keeps variables and runs its parts of the steps of sessions.

        cluster = tb.train.ClusterSpec({"ps": ["localhost:2222"], "worker": ["localhost:2223"]})
        server = tb.train.Server(cluster, job_name="ps", task_index=0)
        server.join()

    It listens on the address of its task only, and serves processes that know the same token only.
    """

    @checked
    def __init__(
        self,
        server_or_cluster_def: AsJobs,
        job_name: Name = None,
        task_index: Count | None = None,
        protocol: Protocol = None,
        config: AsConfig | None = None,
        start: Flag = True,
        *,
        token: Name = None,
    ):
        """server_or_cluster_def: a ClusterSpec, or its dictionary. job_name, task_index: this process's task,
        which may be left out in a cluster of one. protocol: has no effect, there is one. config: the task
        takes `inter_op_parallelism_threads`: threads for ops of all dynamic steps that run here at the same
        time, one of them each step's own.

        token: secret that all processes of the cluster share, by default that of the environment variable
        TENSORBOW_CLUSTER_TOKEN. Without one only addresses of this machine (localhost) are served.

        Raises InvalidArgumentError, NotFoundError for a task that is not of the cluster, UnavailableError for
        an address that cannot be used.
        """
        cluster = ClusterSpec(server_or_cluster_def)
        if config is not None:
            warn_of_ignored(config)
        job_name, task_index = _only_task(cluster, job_name, task_index)
        self._host, self._port = split_address(cluster.task_address(job_name, task_index))
        self._token = token_of(token)
        if not self._token and not _is_local(self._host):
            raise InvalidArgumentError(
                f"Server: expected a token for {self._host}, which other machines may reach, got none; give "
                f"all processes of the cluster the same token=, or set {TOKEN_VARIABLE}"
            )
        self._job, self._index, self._cluster = job_name, task_index, cluster
        self._threads = 0 if config is None else config.inter_op_parallelism_threads
        self._task: ClusterTask | None = None
        self._listener: socket.socket | None = None
        self._lock = threading.Lock()  # guards the connections and sessions
        self._connections: set[Connection] = set()
        self._sessions: Counter[str] = Counter()  # connections of each
        self._stopped = threading.Event()
        if start:
            self.start()

    @staticmethod
    @checked
    def create_local_server(config: AsConfig | None = None, start: Flag = True) -> Server:
        """A cluster of this process alone, at a free port of localhost: job `local`, task 0."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        return Server({"local": [f"127.0.0.1:{port}"]}, "local", 0, config=config, start=start)

    @property
    def target(self) -> str:
        """The target for `tb.Session` that connects to this server."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"tcp://{host}:{self._port}"

    @property
    def server_def(self) -> ClusterSpec:
        """The cluster."""
        return self._cluster

    def start(self) -> None:
        """Begins to serve; does nothing if it serves already. Raises FailedPreconditionError once stopped."""
        if self._listener is not None:
            return
        if self._stopped.is_set():
            raise FailedPreconditionError("Server: it is stopped; make a new one")
        where = f"{self._host}:{self._port}"
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            self._listener = socket.create_server((self._host, self._port), family=family, backlog=128)
        except OSError as error:
            raise UnavailableError(
                f"Server: {where} cannot be listened on: {error}; end the process that uses it, or give "
                f"/job:{self._job}/task:{self._index} another address"
            ) from None
        self._task = ClusterTask(self._cluster, self._job, self._index, self._token, self._threads)
        _here[self._task.incarnation] = self._task
        _tokens[where] = self._token
        threading.Thread(target=self._accept, name=f"tensorbow server {where}", daemon=True).start()
        _logger.info("%s serves at %s", self._task.name, where)

    def join(self) -> None:
        """Waits until the server is stopped: for ever, unless another thread calls `stop`."""
        while not self._stopped.wait(3600):
            pass

    def stop(self) -> None:
        """Ends running steps, closes all connections and frees the variables; idempotent."""
        self._stopped.set()
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.close()
        task, self._task = self._task, None
        if task is not None:
            _here.pop(task.incarnation, None)
            _tokens.pop(f"{self._host}:{self._port}", None)
            task.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<tb.train.Server /job:{self._job}/task:{self._index} at {self._host}:{self._port}>"

    # Serving ----------------------------------------------------------------------------------

    def _accept(self) -> None:
        listener, task = self._listener, self._task
        while listener is not None and task is not None and not self._stopped.is_set():
            try:
                sock, address = listener.accept()
            except OSError:
                return
            threading.Thread(
                target=self._serve,
                args=(sock, task, str(address[0])),
                name=f"{task.name} serves",
                daemon=True,
            ).start()

    def _serve(self, sock: socket.socket, task: ClusterTask, address: str) -> None:
        """Serves one connection until it ends."""
        try:
            connection = accept(sock, self._token, address)
        except (OSError, TensorBowError) as error:
            _logger.warning("%s refuses a connection of %s: %s", task.name, address, error)
            sock.close()
            return
        session = ""
        try:
            with self._lock:
                self._connections.add(connection)
            hello, _ = connection.receive()
            session = str(hello.get("session", ""))
            with self._lock:
                self._sessions[session] += 1
            connection.set_timeout(None)
            connection.reply(task.describe())
            if hello.get("purpose") == "peer":
                _take_values(connection, task)
            else:
                _answer(connection, task, session)
        except (UnavailableError, OSError):
            pass  # the other side has gone
        except Exception as error:
            _logger.warning("%s ends a connection of %s: %s", task.name, address, error)
        finally:
            connection.close()
            with self._lock:
                self._connections.discard(connection)
                self._sessions[session] -= 1
                last = session and self._sessions[session] <= 0
                if not self._sessions[session]:
                    del self._sessions[session]
            if last:
                task.release_session(session)


def _take_values(connection: Connection, task: ClusterTask) -> None:
    """Receives the values that another task sends."""
    while True:
        run: Arrivals | None = None
        boxes: Mapping[str, Array] = {}

        def where(number: int, header: Any) -> Array | None:
            nonlocal run, boxes
            if run is None:
                run = task.run_of(header["run"])
                boxes = run.receive()
            return boxes.get(header["keys"][number])

        try:
            header, arrays = connection.receive(where)
            values: dict[str, Any] = dict(zip(header["keys"], arrays, strict=True))
            values.update(dict.fromkeys(header.get("dead", ()), DEAD))
            task.run_of(header["run"]).arrive(header["stages"], values)
        finally:
            if run is not None:
                run.received()


def _answer(connection: Connection, task: ClusterTask, session: str) -> None:
    """Answers the requests of a session, one after the other."""

    def watch() -> None:
        if connection.ended():
            raise AbortedError("the session that runs the step has gone")

    while True:
        header, arrays = connection.receive()
        try:
            _answer_one(connection, task, session, header, arrays, watch)
        except UnavailableError as error:
            if connection.ended():
                raise
            connection.reply_error(error)
        except Exception as error:
            connection.reply_error(error)


def _answer_one(
    connection: Connection,
    task: ClusterTask,
    session: str,
    header: dict[str, Any],
    arrays: list[Array],
    watch: Watch,
) -> None:
    op = header["op"]
    if op == "run":
        inputs = dict(zip(header["feeds"], arrays, strict=True))
        spans = TaskSpans() if header.get("traced") else None
        task.run(
            header["step"],
            header["run"],
            inputs,
            header["state"],
            RunLimit(watch, TimeLimit.of_entry(header.get("limit")), spans),
            lambda views: connection.reply({}, views if spans is None else [*views, *spans.to_arrays()]),
        )
    elif op == "register":
        graph = arrays[0].tobytes().decode()
        given = {key: header[key] for key in ("fetches", "feeds", "home", "lossy", "incarnations")}
        try:
            answer = task.register(header["step"], session, graph, **given)
        except NeedsDynamicModeError as error:
            answer = {"dynamic": error.why or str(error)}
        connection.reply(answer)
    elif op == "register_dynamic":
        graph = arrays[0].tobytes().decode()
        given = {key: header[key] for key in ("fetches", "feeds", "incarnations", "threads")}
        task.register_dynamic(header["step"], session, graph, **given)
        connection.reply({})
    elif op == "ping":
        task.check_links()
        connection.reply({})
    elif op == "load":
        values: dict[str, dict[str, Array]] = {}
        for (device, name), array in zip(header["names"], arrays, strict=True):
            values.setdefault(device, {})[name] = array
        task.load(values)
        connection.reply({})
    elif op == "declare":
        task.declare(arrays[0].tobytes().decode())
        connection.reply({})
    elif op == "without_value":
        connection.reply({"names": task.without_value(header["names"])})
    elif op == "release":
        task.release(header["steps"])
        connection.reply({})
    elif op == "reset":
        task.reset(header["containers"])
        connection.reply({})
    else:
        raise InvalidArgumentError(f"a request {op!r:.40} is unknown; use the same version on all tasks")


def _only_task(cluster: ClusterSpec, job: str | None, index: int | None) -> tuple[str, int]:
    if job is None:
        if len(cluster.jobs) != 1:
            if not cluster.jobs:
                raise InvalidArgumentError("Server: server_or_cluster_def: expected a job, got none")
            raise InvalidArgumentError(
                f"Server: expected a job_name, one of {', '.join(cluster.jobs)}, got none"
            )
        (job,) = cluster.jobs
    if index is None:
        indices = cluster.task_indices(job)
        if len(indices) != 1:
            raise InvalidArgumentError(f"Server: expected a task_index, one of {indices}, got none")
        (index,) = indices
    return job, index


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
