"""Ray on this machine, for the length of a `with`."""

import contextlib
import os
import shutil
import tempfile

import common

os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"


@contextlib.contextmanager
def session():
    """Start Ray with its usual settings and one CPU for each process of the others."""
    import ray

    folder = tempfile.mkdtemp(prefix="ray")  # the path of a socket must be short
    ray.init(num_cpus=common.PROCESSES, include_dashboard=False, _temp_dir=folder)
    try:
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def rows():
    """How many rows were written."""
    from pyarrow import parquet

    return sum(parquet.read_metadata(path).num_rows for path in common.RESULT.glob("*.parquet"))
