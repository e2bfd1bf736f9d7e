"""The Python examples in docs/checkpoints.md run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from checkpoint_samples import draft, some_arrays
from phalanx.checkpoint.commit import commit

PAGE = (Path(__file__).parents[2] / "docs" / "checkpoints.md").read_text()


@pytest.mark.tensorflow
def test_the_examples_run(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 2
    slots = {
        f"optimizer/adam/dense/{name}/{slot}": np.zeros(shape, np.float32)
        for name, shape in (("kernel", (4, 3)), ("bias", (3,)))
        for slot in ("momentum", "velocity")
    }
    arrays = {
        **some_arrays(500),
        **slots,
        "model/dense/bias": np.zeros(3, np.float32),
        "optimizer/adam/learning_rate": np.array(0.1, np.float32),
    }
    commit(tmp_path / "checkpoints", arrays, draft(500), None)
    program = "\n".join([*examples, "print(model.get_weights()[0][0, 0], int(model.optimizer.iterations))"])
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    found = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
        env=environ,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    listed, restored, applied = found.stdout.splitlines()
    assert re.fullmatch(r"500 \d+ bytes, 2030-01-01T00:00:00\+00:00", listed)
    assert restored == "500 (4, 3)"
    assert applied == "500.0 500"
