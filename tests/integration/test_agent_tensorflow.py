"""A script that builds its own MultiWorkerMirroredStrategy and never imports phalanx, under the agent."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agent_bench import make_run, start_agent
from phalanx.agent.ports import HeldPorts
from phalanx.events.kinds import Kind
from phalanx.plan.cluster_spec import tf_config
from waiting import wait_for

pytestmark = pytest.mark.tensorflow

SCRIPT = """
import json, os
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]

@tf.function
def total():
    def replica():
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(10.0 ** task))
    return strategy.experimental_local_results(strategy.run(replica))[0]

print("sum", total().numpy(), flush=True)
if not os.path.exists("again"):
    while True:
        total()
"""


def test_a_plain_script_survives_the_death_of_a_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind a proxy, which TensorFlow would ask for its peers."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    run = start_agent(make_run(tmp_path, SCRIPT, prelude=""))
    wait_for(lambda: all("sum 11.0" in run.log(1, rank) for rank in (0, 1)), 90, "the first sum")
    (tmp_path / "again").touch()
    os.kill(run.pid(1, 1), signal.SIGKILL)
    assert run.wait(120) == 0, run.log(2, 0)
    failed, done = run.events(Kind.ROUND_ENDED)
    assert (failed.rank, failed.data["cause"], done.data["cause"]) == (1, "killed", "finished")
    for round_number in (1, 2):
        for rank in (0, 1):
            assert "sum 11.0" in run.log(round_number, rank)


def test_a_lost_peer_is_fallout_and_a_taken_port_is_the_machine(tmp_path: Path) -> None:
    """The bootstrap tells TensorFlow's own errors apart, whoever raised them."""
    script = """
import tensorflow as tf
errors = {
    "lost": tf.errors.UnavailableError(None, None, "Socket closed"),
    "port": tf.errors.UnknownError(None, None, "Could not start gRPC server"),
    "user": tf.errors.InvalidArgumentError(None, None, "shapes differ"),
}
raise errors[sys.argv[1]]
"""
    codes = {}
    for name in ("lost", "port", "user"):
        run_dir = make_run(tmp_path, script, workers=1, args=(name,), max_restarts=0, name=name)
        codes[name] = start_agent(run_dir).wait(60)
    assert codes == {"lost": 80, "port": 84, "user": 1}


BINDS = """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import tensorflow as tf
tf.distribute.MultiWorkerMirroredStrategy()
"""


@pytest.mark.parametrize("shares", [True, False])
def test_tensorflow_binds_beside_a_held_port_only_when_it_is_told_to(shares: bool) -> None:
    ports = HeldPorts(2)
    # The second worker never comes: the first binds before it waits for it.
    env = {**os.environ, "TF_CONFIG": tf_config(ports.addresses, 0), "TF_GRPC_REUSE_PORT": "1"}
    if not shares:
        del env["TF_GRPC_REUSE_PORT"]
    port = int(ports.addresses[0].rpartition(":")[2])
    assert not connects(port)
    process = subprocess.Popen(
        [sys.executable, "-c", BINDS], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        if shares:
            wait_for(lambda: connects(port), 60)
        else:
            output, _ = process.communicate(timeout=60)
            assert "Could not start gRPC server" in output
    finally:
        process.kill()
        process.communicate(timeout=10)
        ports.close()


def connects(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != errno.ECONNREFUSED
