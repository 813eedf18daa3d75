"""A real PostgreSQL for tests, of Debian's package: its own data folder, port and socket, gone afterwards."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from servers import free_port

USER, PASSWORD = "erd", "not a secret: &/%"


@dataclass(frozen=True)
class Postgres:
    port: int
    tools: Path  # psql, pg_dump, …

    def run(self, tool: str, *words: str) -> str:
        """What one of its tools says, as a user of the database calls it."""
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER]
        done = subprocess.run(
            [self.tools / tool, *place, *words],
            env=os.environ | {"PGPASSWORD": PASSWORD}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask(self, database: str, query: str) -> list[str]:
        return self.run("psql", "-d", database, "-At", "-c", query).splitlines()


@contextmanager
def server(sql: str) -> Iterator[Postgres]:
    """With the databases that `sql` makes."""
    newest = max(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: path.parts[4], default=None)
    if newest is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    # Not below pytest's folders, which are root's alone; PostgreSQL refuses to run as root.
    folder = Path(tempfile.mkdtemp(prefix="erd-postgres-"))
    other = {}
    if os.geteuid() == 0:
        account = pwd.getpwnam("postgres")
        os.chown(folder, account.pw_uid, account.pw_gid)
        other = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    (folder / "password").write_text(PASSWORD)
    (folder / "password").chmod(0o644)
    found, data = Postgres(free_port(), newest.parent), str(folder / "data")
    making = ["-U", USER, "-A", "scram-sha-256", "--pwfile", str(folder / "password"), "--no-sync"]
    initdb = [str(found.tools / "initdb"), "-D", data, *making]
    subprocess.run(initdb, check=True, capture_output=True, cwd=folder, **other)  # type: ignore[call-overload]
    words = [
        str(newest),
        "-D",
        data,
        "-p",
        str(found.port),
        "-k",
        str(folder),
        "-c",
        "listen_addresses=127.0.0.1",
        "-F",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder, start_new_session=True, **other)  # type: ignore[call-overload]
    try:
        ready = [str(found.tools / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(found.port)]
        deadline = time.monotonic() + 60
        while subprocess.run(ready).returncode:
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "PostgreSQL does not answer"
            time.sleep(0.1)
        for statement in filter(str.strip, sql.split(";")):
            found.ask("postgres", statement)
        yield found
    finally:
        process.send_signal(signal.SIGINT)  # ends with whatever is connected
        try:
            process.wait(30)
        finally:
            process.kill()
            shutil.rmtree(folder, ignore_errors=True)
