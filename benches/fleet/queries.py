"""What `brimful runs --at` prints, asked of DuckDB: the same numbers, by another engine.

Imported by `records.py` and by the tests.
"""

HEADLINE = """
select count(*) filter (where is_last) as n_runs,
       count(*) as n_attempts,
       count(*) filter (where is_last and is_memory) as n_died_of_memory,
       count(*) filter (where is_last and rungs > 0 and outcome = 'finished') as n_came_back,
       sum(wasted_gpu_hours) as wasted_gpu_hours,
       sum(seconds / 3600 * n_gpus) as gpu_hours
from runs
"""
CAUSES = """
select cause, count(*) as n_attempts, sum(wasted_gpu_hours) as wasted_gpu_hours
from runs where cause is not null group by cause order by n_attempts desc, cause
"""
JOBS = """
select job, count(*) filter (where is_memory) as n_out_of_memory,
       count(*) filter (where is_last) as n_runs,
       count(*) filter (where is_last and outcome = 'finished') as n_finished,
       sum(wasted_gpu_hours) as wasted_gpu_hours
from runs group by job having n_out_of_memory > 0
order by n_out_of_memory desc, wasted_gpu_hours desc, job limit 20
"""
UNUSED = """
select count(*) as n_attempts,
       sum(({limit} - {peak}) * seconds) / sum({limit} * seconds) as unused_share,
       quantile_disc(({limit} - {peak}) / {limit}, 0.5) as median_unused_share
from runs where outcome = 'finished' and {limit} is not null and {peak} is not null
"""
PREDICTION = """
select count(*) as n_attempts,
       quantile_disc({part}_likely_bytes / {part}_peak_bytes - 1, 0.5) as median_error,
       quantile_disc(abs({part}_likely_bytes / {part}_peak_bytes - 1), 0.9) as p90_absolute_error,
       count(*) filter (where {part}_peak_bytes > {part}_safe_bytes) as n_above_safe
from runs where outcome = 'finished' and {part}_likely_bytes is not null and {part}_peak_bytes > 0
"""


def answers(files, schema_version=1):
    """Ask DuckDB all of it, in the form of the document that `brimful runs --at --json` prints."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("set threads to 2")
    # In parts: of 10,000 files at once, DuckDB 2.0 holds 2.5 GB.
    for first in range(0, len(files), 1000):
        part = [list(map(str, files[first : first + 1000])), schema_version]
        select = "select * from read_parquet(?) where schema_version <= ?"
        start = "create temp table runs as " if first == 0 else "insert into runs "
        connection.execute(start + select, part)

    def rows(query):
        found = connection.execute(query)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    result = rows(HEADLINE)[0]
    result["causes"] = rows(CAUSES)
    result["jobs"] = rows(JOBS)
    for part, limit in (("host", "host_limit_bytes"), ("gpu", "gpu_size_bytes")):
        result[part] = rows(UNUSED.format(limit=limit, peak=f"{part}_peak_bytes"))[0]
        result[f"{part}_prediction"] = rows(PREDICTION.format(part=part))[0]
    return result


def differences(ours, theirs, path=""):
    """Where two answers differ by more than rounding."""
    if isinstance(theirs, dict):
        for name, value in theirs.items():
            yield from differences(ours[name], value, f"{path}.{name}")
    elif isinstance(theirs, list):
        if len(ours) != len(theirs):
            yield f"{path}: {len(ours)} and {len(theirs)} entries"
        for idx, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from differences(one, other, f"{path}[{idx}]")
    elif isinstance(theirs, float):
        if abs(ours - theirs) > 1e-9 * max(1, abs(theirs)):
            yield f"{path}: {ours} and {theirs}"
    elif ours != theirs:
        yield f"{path}: {ours} and {theirs}"
