"""Commits one checkpoint after the other and says so, until killed: save_loop.py DIR FIRST_STEP KEEP."""

import sys
from pathlib import Path

import numpy as np

from checkpoint_samples import draft
from phalanx.checkpoint import fence, retention
from phalanx.checkpoint.commit import commit

directory, step, keep = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
token = fence.take(directory, directory.parent / "run", step)
retention.clean_leftovers(directory)
while True:
    done = commit(directory, {"w": np.full(20_000, step, np.float32)}, draft(step), token)
    print(step, flush=True)
    retention.prune(directory, keep, done.path)
    step += 1
