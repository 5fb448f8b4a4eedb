"""`brimful.share()` without NumPy and torch: lists, dicts, other processes, and what is left behind."""

from __future__ import annotations

import collections
import contextlib
import copy
import importlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import brimful

VALUES: list[Any] = [
    1,
    -(2**63),
    2**64,
    -(2**200),
    2.5,
    "text",
    "größer 世界 🙂",
    "\udc80not utf-8",
    b"bytes\0",
    None,
    True,
    (),
    (1, ("two", [3, {"four": 5}])),
    [],
    [[[]]],
    {},
    {"a": {"b": [1, 2]}},
    [1, 2, 300],
    [0.5, 1.5],
    ["a", "", "b"],
    [b"x", b""],
    [True, False],
    [1, True, 1.0],
]


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("where", ["memory", "disk", "folder"])
def test_what_was_shared_comes_back(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = {"folder": tmp_path / "made" / "on demand"}.get(where, where)
    shared = brimful.share(VALUES, where=place)
    assert shared.tolist() == VALUES
    assert shared == VALUES
    for found, value in zip(shared, VALUES, strict=True):
        assert found == value
        kept = (brimful.SharedList, brimful.SharedDict)
        assert isinstance(found, kept) or type(found) is type(value)
    assert [type(item) for item in shared[-1]] == [int, bool, float]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [], "the file has no name"


def test_a_list_is_read_like_a_list() -> None:
    data = [f"text {number}" for number in range(100)]
    shared = brimful.share(data)
    assert len(shared) == 100
    assert (shared[0], shared[-1], shared[True]) == (data[0], data[-1], data[1])
    slices = [
        slice(10),
        slice(None, None, -1),
        slice(90, 5, -7),
        slice(-5, None),
        slice(3, 3),
        slice(5, 200, 3),
    ]
    for cut in slices:
        assert shared[cut] == data[cut]
        assert shared[cut][::-2] == data[cut][::-2]
        assert list(reversed(shared[cut])) == list(reversed(data[cut]))
    assert next(reversed(shared)) == data[-1]
    assert shared.__getitems__([3, -1, 3]) == [data[3], data[-1], data[3]]
    assert shared.__getitems__(range(2)) == data[:2]
    assert "text 7" in shared
    assert "text" not in shared
    assert 7 not in shared
    assert shared.index("text 7") == 7
    assert shared.index("text 7", -100, 8) == 7
    assert brimful.share([1, 2, 1, 1.0, True, "1"]).count(1) == 4
    with pytest.raises(ValueError, match="not in the list"):
        shared.index("text 7", 8)
    for wrong in (100, -101, 2**70):
        with pytest.raises(IndexError):
            shared[wrong]
    for key in ("a", 1.0, None):
        with pytest.raises(TypeError):
            shared[key]
    with pytest.raises(TypeError):
        shared[0] = "other"
    with pytest.raises(TypeError):
        hash(shared)
    assert isinstance(shared, Sequence)
    assert shared != data[:-1]
    assert shared != tuple(data)
    assert data == shared


def test_a_dict_is_read_like_a_dict() -> None:
    data: dict[Any, Any] = {f"key {number}": number for number in range(1000)}
    data |= {1: "one", 2.5: "float", None: "none", b"b": "bytes", (1, "a"): "tuple", 2**80: "big", "ü": [1]}
    shared = brimful.share(data)
    assert len(shared) == len(data)
    assert list(shared) == list(data)
    assert shared == data
    assert data == shared
    assert shared != {**data, "more": 1}
    assert list(shared.items()) == list(data.items())
    assert list(shared.values()) == list(data.values())
    assert shared.keys() & {"key 5", "absent"} == {"key 5"}
    assert all(shared[key] == value for key, value in data.items())
    assert (shared[1.0], shared[True], shared[(1.0, "a")]) == ("one", "one", "tuple")
    assert shared.get("absent") is None
    assert shared.get("absent", 5) == 5
    assert "absent" not in shared
    assert shared.todict() == data
    with pytest.raises(KeyError, match="absent"):
        shared["absent"]
    with pytest.raises(TypeError, match="unhashable"):
        shared[[]]
    assert isinstance(shared, Mapping)
    assert dict(shared) == data


def test_records_name_their_fields_once() -> None:
    one, many = ([{"a long name of a field": 1, "another": 2}] * count for count in (1, 1001))
    per_record = (brimful.share(many).nbytes - brimful.share(one).nbytes) / 1000
    assert per_record < 100


def test_other_dicts_become_plain_ones() -> None:
    ordered = collections.OrderedDict(a=1)
    grouped = collections.defaultdict(list, {"x": [1]})
    shared = brimful.share([ordered, grouped])
    assert shared.tolist() == [{"a": 1}, {"x": [1]}]


def test_an_iterator_is_taken_item_by_item() -> None:
    shared = brimful.share(str(number) for number in range(1000))
    assert shared == [str(number) for number in range(1000)]
    assert brimful.share(iter([])) == []
    mixed: list[Any] = ["a", "b", 3, "c", ["d"], "e"]
    assert brimful.share(iter(mixed)) == mixed

    def failing() -> Any:  # noqa: ANN401
        yield 1
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        brimful.share(failing())


def test_a_tuple_that_is_shared_itself_becomes_a_list() -> None:
    train, test = brimful.share((["a"], ["b"]))
    assert (train.tolist(), test.tolist()) == (["a"], ["b"])


def test_what_is_shared_can_be_shared_again() -> None:
    shared = brimful.share([["a"], {"b": 1}])
    assert brimful.share(shared) is shared
    assert brimful.share([shared[0], shared[1], 5]) == [["a"], {"b": 1}, 5]


class Point(NamedTuple):
    x: int


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "place", "found"),
    [
        ([1, {"meta": {1, 2}}], "[1]['meta']", "set"),
        ([[], [[object()]]], "[1][0][0]", "object"),
        ({"a": Point(1)}, "['a']", "Point"),
        ([Text("a")], "[0]", "Text"),
        ([Path("a")], "[0]", "Path"),
        ([1 + 2j], "[0]", "complex"),
        ({Point(1): 1}, "[Point(x=1)]", "Point"),
        ("text", None, "str"),
        (5, None, "int"),
    ],
)
def test_what_cannot_be_shared_is_named_with_its_place(value: object, place: str | None, found: str) -> None:
    with pytest.raises(brimful.InputError) as caught:
        brimful.share(value)
    assert found in caught.value.message
    assert place is None or caught.value.message.endswith(f" at {place}")
    assert caught.value.hints


def test_what_holds_itself_and_what_is_too_deep_is_refused() -> None:
    circle: list[Any] = [[]]
    circle[0].append(circle)
    with pytest.raises(brimful.InputError, match="without circular references"):
        brimful.share(circle)
    deep: list[Any] = []
    for _ in range(1000):
        deep = [deep]
    with pytest.raises(brimful.InputError, match="levels"):
        brimful.share(deep)


def test_a_wrong_place_is_told(tmp_path: Path) -> None:
    with pytest.raises(brimful.InputError, match="'memory', 'disk' or a directory"):
        brimful.share([1], where="ram")
    (tmp_path / "file").touch()
    with pytest.raises(brimful.MachineError, match="failed to create"):
        brimful.share([1], where=tmp_path / "file")


def test_who_has_no_home_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    # What it gives for a user that the machine does not know.
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(brimful.MachineError, match="no home directory") as caught:
        brimful.share([1], where="disk")
    assert "XDG_CACHE_HOME" in str(caught.value)


def test_a_pickle_is_a_handle() -> None:
    shared = brimful.share([["x" * 1000] * 1000, {"a": list(range(1000))}])
    for part in (shared, shared[0], shared[0][10:20:3], shared[1], shared[1]["a"]):
        sent = pickle.dumps(part)
        assert len(sent) < 200
        assert pickle.loads(sent) == part  # noqa: S301
    assert copy.deepcopy(shared) == shared
    assert copy.copy(shared[1]) == shared[1]


def test_it_shows_itself() -> None:
    shared = brimful.share(["x" * 500, 2, 3, 4])
    assert repr(shared).startswith("<SharedList of 4 items in ")
    assert len(repr(shared)) < 200
    assert repr(brimful.share({"a": 1})).endswith("{'a': 1}>")
    assert shared.nbytes > 500


def test_the_original_is_not_changed_and_takes_no_more_memory() -> None:
    # Asking a text for its UTF-8 would leave a second copy inside of it.
    text = "ü" * 1000
    before = sys.getsizeof(text)
    brimful.share([text, {"key": text}, dict.fromkeys([text, *map(str, range(100))])])
    assert sys.getsizeof(text) == before


def test_nothing_heavy_is_imported() -> None:
    heavy = run_python("""
        import sys, brimful
        brimful.share([1, "a", {"b": (2,)}]).tolist()
        print([m for m in ("torch", "numpy", "mmap", "multiprocessing", "ctypes") if m in sys.modules])
    """)
    assert heavy == "[]"


# In a module of its own: a process that is not forked has to import it, and cannot import a test.
ANSWERS = """
import pickle

def answer(shared, results):
    # Handed on once more, from here.
    again = pickle.loads(pickle.dumps(shared["texts"]))
    results.put((shared["texts"][500], again[-1], shared["sizes"].tolist()[:2], len(shared)))
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("where", ["memory", "disk"])
def test_other_processes_read_the_same_copy(
    method: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "answers_of_a_child.py").write_text(ANSWERS)
    monkeypatch.syspath_prepend(tmp_path)
    answer = importlib.import_module("answers_of_a_child").answer
    texts = [f"text {number}" for number in range(1000)]
    shared = brimful.share({"texts": texts, "sizes": [(1, 2), (3, 4)]}, where=where)
    context: Any = multiprocessing.get_context(method)
    results = context.Queue()
    child = context.Process(target=answer, args=(shared, results))
    child.start()
    assert results.get(timeout=60) == ("text 500", "text 999", [(1, 2), (3, 4)], 2)
    child.join(60)
    assert child.exitcode == 0


def test_a_handle_outlives_the_first_owner_but_not_the_last() -> None:
    sent = run_python("""
        import brimful, pickle
        print(pickle.dumps(brimful.share(["a"])).hex())
    """)
    with pytest.raises(brimful.MachineError) as caught:
        pickle.loads(bytes.fromhex(sent))  # noqa: S301
    assert "no longer exists" in caught.value.message
    assert "keep the shared object" in caught.value.hints[0]
    shared = brimful.share(["a"])
    sent_here = pickle.dumps(shared)
    del shared
    with pytest.raises(brimful.MachineError, match=r"is no longer the shared copy|no longer exists"):
        pickle.loads(sent_here)  # noqa: S301


def test_a_descriptor_that_others_closed_is_noticed() -> None:
    said = run_python("""
        import brimful, os, pickle
        shared = brimful.share(["a"])
        other = os.open("/dev/null", os.O_RDONLY)
        for fd in range(3, other):
            if "brimful-share" in os.readlink(f"/proc/self/fd/{fd}"):
                os.dup2(other, fd)
        assert shared[0] == "a", "the map stays"
        try:
            pickle.dumps(shared)
        except brimful.MachineError as error:
            print(error.message)
        os._exit(0)
    """)
    assert "closed or reused it" in said


def _holders(inode: str) -> list[str]:
    """Return the processes that have a shared copy mapped; it is in memory as long as there are some."""
    found = []
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            lines = [line.split() for line in maps.read_text().splitlines() if "brimful-share" in line]
            if any(line[4] == inode for line in lines):
                found.append(maps.parent.name)
    return found


HOLDER = """
    import brimful, multiprocessing, os, time

    def say(line):
        # In one piece: both processes write to one pipe.
        os.write(1, line.encode() + b"\\n")

    def hold(shared):
        assert shared[-1] == "x" * 1000
        say("ready")
        time.sleep(600)

    if __name__ == "__main__":
        shared = brimful.share("x" * 1000 for _ in range(1000))
        child = multiprocessing.get_context("fork").Process(target=hold, args=(shared,), daemon=True)
        child.start()
        maps = open("/proc/self/maps").read().splitlines()
        inode = next(line.split()[4] for line in maps if "brimful-share" in line)
        say(f"{child.pid} {inode}")
        time.sleep(600)
"""


def test_nothing_is_left_after_a_kill() -> None:
    holder = subprocess.Popen([sys.executable, "-c", textwrap.dedent(HOLDER)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    said = sorted(holder.stdout.readline().decode().strip() for _ in range(2))
    assert said[1] == "ready"
    child, inode = said[0].split()
    assert sorted(_holders(inode)) == sorted([str(holder.pid), child])
    holder.kill()
    holder.wait()
    assert _holders(inode) == [child], "a worker that is still there keeps it"
    os.kill(int(child), signal.SIGKILL)
    # The pipe ends when the last of them is gone.
    assert holder.stdout.read() == b""
    holder.stdout.close()
    assert _holders(inode) == []
