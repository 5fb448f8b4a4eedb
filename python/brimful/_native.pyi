"""
The compiled part of brimful. Import `brimful` instead.
"""

from _typeshed import Incomplete, SupportsGetItem
from os import PathLike
from typing import Any, Final, SupportsFloat, SupportsIndex, final

__all__ = ["__version__", "BatchArray", "Dataset", "Epoch", "Loader", "OtlpExporter", "Packing", "Preparing", "Recipe", "RunFollower", "SharedArray", "SharedDict", "SharedList", "SharedListIterator", "TaskCoordinator", "card_names", "check_report", "compare", "explain", "file_sizes", "machine_names", "open_arrow", "open_folder", "open_hdf5", "open_lines", "open_npy", "open_parquet", "open_raw", "open_tar", "open_tokens", "plan", "predict", "prepare_tasks", "probe", "read_manifest", "record_runs", "replay", "report", "report_document", "run_of_supervisor", "run_prepare_task", "runs", "share", "shared_from_handle", "size_bytes", "size_text", "survey", "unshown_kill"]

__version__: Final[str]
"""
The version of brimful.
"""

@final
class BatchArray:
    """
    Memory of a batch. `torch.from_dlpack` and `numpy.asarray` take it as it is.
    """
    @property
    def __array_interface__(self, /) -> Any:
        """
        For NumPy.
        """
    def __dlpack__(self, /, *, stream: Any | None = None, max_version: Any | None = None, dl_device: tuple[SupportsIndex, SupportsIndex] | None = None, copy: bool | None = None) -> Any:
        """
        The memory itself; nothing is copied.
        """
    def __dlpack_device__(self, /) -> tuple[int, int]:
        """
        The processor.
        """
    def __len__(self, /) -> int: ...
    def __repr__(self, /) -> str: ...
    @property
    def dtype(self, /) -> str:
        """
        As NumPy and torch call it.
        """
    @property
    def nbytes(self, /) -> int: ...
    @property
    def shape(self, /) -> Any: ...

@final
class Dataset:
    def __len__(self, /) -> int: ...
    def cast(self, /, field: str, dtype: str) -> Dataset: ...
    def copy(self, /, field: str, to: str) -> Dataset: ...
    def crop(self, /, fields: SupportsGetItem[int, str], height: SupportsIndex, width: SupportsIndex, random: bool) -> Dataset: ...
    def decode(self, /, field: str, max_pixels: SupportsIndex) -> Dataset: ...
    def fields(self, /) -> list[tuple[str, str]]:
        """
        Names of fields and what they are.
        """
    def flip(self, /, fields: SupportsGetItem[int, str], probability: SupportsFloat | SupportsIndex) -> Dataset: ...
    def keep(self, /, fields: SupportsGetItem[int, str]) -> Dataset: ...
    def normalize(self, /, field: str, mean: SupportsGetItem[int, SupportsFloat | SupportsIndex], std: SupportsGetItem[int, SupportsFloat | SupportsIndex], scale: SupportsFloat | SupportsIndex | None) -> Dataset: ...
    def numbered(self, /, name: str) -> Dataset:
        """
        With a field that has the number of each sample.
        """
    def part(self, /, start: SupportsIndex, end: SupportsIndex, seed: SupportsIndex | None) -> Dataset:
        """
        The samples at these positions; with a seed, of an order that is shuffled by it.
        """
    def reading(self, /) -> str:
        """
        How the bytes are read, and why.
        """
    def rename(self, /, field: str, to: str) -> Dataset: ...
    def resize(self, /, field: str, height: SupportsIndex, width: SupportsIndex, filter: str) -> Dataset: ...
    def tokenize(self, /, field: str, tokenizer: str | PathLike[str], length: SupportsIndex, *, pad_id: SupportsIndex | None, special_tokens: bool, max_bytes: SupportsIndex | None, mask: str | None) -> Dataset: ...
    def transpose(self, /, field: str, axes: SupportsGetItem[int, SupportsIndex]) -> Dataset: ...
    def voxelize(self, /, field: str, size: SupportsIndex, dtype: str, channel: bool, surface: bool, rotations: SupportsIndex) -> Dataset: ...

@final
class Epoch:
    def close(self, /) -> None:
        """
        Ends the threads.
        """
    def next(self, /) -> tuple[list[BatchArray], int] | None:
        """
        The fields of the next batch and the position after it; None at the end.
        """

@final
class Loader:
    def __new__(cls, /, dataset: Dataset, *, batch_size: SupportsIndex, shuffle: bool, seed: SupportsIndex, memory: SupportsIndex, threads: SupportsIndex | None, prefetch: SupportsIndex, rank: SupportsIndex, world_size: SupportsIndex, drop_last: bool, skip_errors: bool) -> Loader: ...
    def batches(self, /, position: SupportsIndex) -> int:
        """
        Batches of this rank from a position to the end of an epoch.
        """
    @property
    def budget(self, /) -> tuple[int, int, int, int]:
        """
        Threads, how many of them are past reading at once, batches ahead, bytes of a batch.
        """
    def epoch(self, /, epoch: SupportsIndex, position: SupportsIndex) -> Epoch:
        """
        Starts to make the batches of an epoch from a position on.
        """
    @property
    def held_bytes(self, /) -> int: ...
    @property
    def samples(self, /) -> int:
        """
        Samples of an epoch, over all ranks.
        """
    def set_pressure(self, /, pressure: SupportsFloat | SupportsIndex) -> None: ...
    @property
    def skipped(self, /) -> list[str]:
        """
        Why samples were left out, of the first ones.
        """
    @property
    def statistics(self, /) -> tuple[int, int, int, float, float, float, list[tuple[str, float]]]:
        """
        Batches, samples, skipped samples; seconds that the consumer waited, that threads worked and that they were idle, and
        those of each stage.
        """

@final
class OtlpExporter:
    """
    Follows the run that a process of brimful supervises, and sends its metrics to a collector.
    """
    def __new__(cls, /, *, url: str | None, supervisor_pid: SupportsIndex, since_unix_ms: SupportsIndex, host_name: str, state_dir: str | PathLike[str] | None) -> OtlpExporter: ...
    def poll(self, /) -> str | None:
        """
        Takes what is new in the record. Returns why the last values did not reach the collector.
        """
    def shut_down(self, /) -> str | None:
        """
        Sends the last values. Returns why they did not reach the collector.
        """

@final
class Packing:
    def __new__(cls, /, dataset: Dataset, field: str, tokenizer: str | PathLike[str], path: str | PathLike[str], *, dtype: str | None, end_id: SupportsIndex | None, special_tokens: bool, threads: SupportsIndex | None, memory: SupportsIndex) -> Packing: ...
    def close(self, /) -> None:
        """
        Ends the threads; what is not whole is removed.
        """
    @property
    def done(self, /) -> int:
        """
        Samples that are written.
        """
    @property
    def total(self, /) -> int:
        """
        Samples of the dataset.
        """
    def wait(self, /) -> tuple[int, int, str] | None:
        """
        Documents, tokens and their dtype; None after a short wait if packing is not finished.
        """

@final
class Preparing:
    def __new__(cls, /, recipe: Recipe, out: str | PathLike[str], *, memory: SupportsIndex, threads: SupportsIndex | None) -> Preparing: ...
    def close(self, /) -> None:
        """
        Ends the threads; what is finished stays for the next time.
        """
    @property
    def progress(self, /) -> tuple[str, int, int, int, int, int]:
        """
        Name of the phase, finished tasks, all tasks, finished bytes, all bytes and the memory peak.
        """
    def wait(self, /) -> str | None:
        """
        The manifest and more as JSON; None after a short wait if preparing is not finished.
        """

@final
class Recipe:
    def estimate(self, /, out: str | PathLike[str], memory: SupportsIndex, report: str | PathLike[str] | None = None) -> str:
        """
        What preparing would take, as JSON; and a report of it, if a path is given.
        """
    @staticmethod
    def of(dataset: Dataset, *, field: str | None, tokenizer: str | PathLike[str] | None, dtype: str | None, end_id: SupportsIndex | None, special_tokens: bool, block: SupportsIndex | None, seed: SupportsIndex, shard: SupportsIndex, split: SupportsIndex, on_error: str, keep: str | PathLike[str] | None) -> Recipe: ...
    @staticmethod
    def read(path: str | PathLike[str], keep: str | PathLike[str] | None = None) -> Recipe: ...
    def report(self, /, out: str | PathLike[str], memory: SupportsIndex, path: str | PathLike[str], peak: SupportsIndex | None = None) -> None:
        """
        Writes a report of the dataset that was prepared.
        """

@final
class RunFollower:
    """
    Follows the run that a process of brimful supervises.
    """
    def __new__(cls, /, *, supervisor_pid: SupportsIndex, since_unix_ms: SupportsIndex, state_dir: str | PathLike[str] | None) -> RunFollower: ...
    def poll(self, /) -> tuple[str, str] | None:
        """
        The HTML for a notebook and one line of text; None if nothing was recorded since the last call.
        """

@final
class SharedArray:
    """
    A NumPy array or a torch tensor in shared memory.

    Made by `brimful.share`. Indexing returns regular arrays or tensors without a copy; other attributes are those of
    the array or tensor (`shape`, `dtype`, `mean`, …); `value` is the whole array. Pickling sends a handle, not the data.
    """
    def __getattr__(self, name: Any, /) -> Any: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __getitems__(self, /, indices: Any) -> list[Any]:
        """
        Many items at once, as the workers of a DataLoader ask for them.
        """
    def __iter__(self, /) -> Any: ...
    def __len__(self, /) -> int: ...
    def __reduce__(self, /) -> Any: ...
    def __repr__(self, /) -> str: ...
    @property
    def nbytes(self, /) -> int:
        """
        Bytes of the whole shared copy.
        """
    @property
    def value(self, /) -> Any:
        """
        The array or tensor itself, without a copy. Pickling it would send the data.
        """

@final
class SharedDict:
    """
    A dict in shared memory: it is read like a dict and cannot be changed.

    Made by `brimful.share`. Each access creates a new value; nested lists and dicts are views.
    Pickling sends a handle, not the data.
    """
    def __contains__(self, key: Any, /) -> bool: ...
    def __eq__(self, other: object, /) -> Any: ...
    def __ge__(self, other: object, /) -> Any: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __gt__(self, other: object, /) -> Any: ...
    def __iter__(self, /) -> SharedListIterator: ...
    def __le__(self, other: object, /) -> Any: ...
    def __len__(self, /) -> int: ...
    def __lt__(self, other: object, /) -> Any: ...
    def __ne__(self, other: object, /) -> Any: ...
    def __reduce__(self, /) -> Any: ...
    def __repr__(self, /) -> str: ...
    def _iterate_values(self, /) -> SharedListIterator:
        """
        Walks through the values.
        """
    def get(self, /, key: Any, default: Any | None = None) -> Any | None:
        """
        The value of a key, or `default` if it is not there.
        """
    def items(self, /) -> Any:
        """
        Pairs of keys and values, in the order in which they came.
        """
    def keys(self, /) -> Any:
        """
        The keys, in the order in which they came.
        """
    @property
    def nbytes(self, /) -> int:
        """
        Bytes of the whole shared copy that this is a part of.
        """
    def todict(self, /) -> Any:
        """
        A plain dict of plain values, all the way down; arrays stay as they are.
        """
    def values(self, /) -> Any:
        """
        The values, in the order in which their keys came.
        """

@final
class SharedList:
    """
    A list in shared memory: it is read like a list and cannot be changed.

    Made by `brimful.share`. Each access creates a new item; slices and nested lists are views.
    Pickling sends a handle, not the data.
    """
    @property
    def __array_interface__(self, /) -> Any:
        """
        Lists of numbers become NumPy arrays without a copy; others have no such attribute.
        """
    def __contains__(self, value: Any, /) -> bool: ...
    def __eq__(self, other: object, /) -> Any: ...
    def __ge__(self, other: object, /) -> Any: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __getitems__(self, /, indices: Any) -> list[Any]:
        """
        Many items at once, as the workers of a DataLoader ask for them.
        """
    def __gt__(self, other: object, /) -> Any: ...
    def __iter__(self, /) -> SharedListIterator: ...
    def __le__(self, other: object, /) -> Any: ...
    def __len__(self, /) -> int: ...
    def __lt__(self, other: object, /) -> Any: ...
    def __ne__(self, other: object, /) -> Any: ...
    def __reduce__(self, /) -> Any: ...
    def __repr__(self, /) -> str: ...
    def __reversed__(self, /) -> SharedListIterator: ...
    def count(self, /, value: Any) -> int:
        """
        How often `value` is in it.
        """
    def index(self, /, value: Any, start: SupportsIndex = 0, stop: SupportsIndex | None = None) -> int:
        """
        The first place of `value`; ValueError if it is not there.
        """
    @property
    def nbytes(self, /) -> int:
        """
        Bytes of the whole shared copy that this is a part of.
        """
    def tolist(self, /) -> list[Any]:
        """
        A plain list of plain values, all the way down; arrays stay as they are.
        """

@final
class SharedListIterator:
    """
    Walks through a `SharedList`.
    """
    def __iter__(self, /) -> SharedListIterator: ...
    def __length_hint__(self, /) -> int: ...
    def __next__(self, /) -> Any: ...

@final
class TaskCoordinator:
    """
    A preparation whose tasks other processes run.
    """
    def __new__(cls, /, out: str | PathLike[str], recipe: Recipe | None = None) -> TaskCoordinator:
        """
        Begins with a recipe, or continues what was begun.
        """
    def close(self, /) -> None:
        """
        Unlocks the directory.
        """
    def finish(self, /) -> str:
        """
        Writes the manifest, after all shard tasks; the result as JSON.
        """
    @property
    def finished(self, /) -> str | None:
        """
        The result if it was finished before, as JSON.
        """
    def map_tasks(self, /) -> int:
        """
        The number of map tasks; the task of that number is to be run when all others are finished.
        """
    def missing_map_tasks(self, /) -> list[int]:
        """
        Map tasks that are not finished.
        """
    def shards(self, /) -> int:
        """
        The number of shard tasks, after all map tasks.
        """

def card_names() -> list[str]:
    """
    The names that `probe(gpu=…)` takes.
    """

def check_report(path: str | PathLike[str], out: str | PathLike[str]) -> None:
    """
    Raises an error if a report cannot be written to `path`. The directory `out` will exist.
    """

def compare(*, command: SupportsGetItem[int, str], shown: SupportsGetItem[int, str], gpus: SupportsGetItem[int, str], machines: SupportsGetItem[int, str], prices: SupportsGetItem[int, tuple[str, SupportsFloat | SupportsIndex]], epochs: SupportsFloat | SupportsIndex | None, total_steps: SupportsIndex | None, job: str | PathLike[str] | None, mode: str | None, rehearsal: Incomplete, progress: Any | None) -> tuple[str, str, str]:
    """
    Compares GPUs and machines for a command, or for a job if the command is empty.

    Returns the JSON document, the page for a terminal and the HTML for a notebook. `progress` is called with one line
    at a time.
    """

def explain(*, what: str | None, state_dir: str | PathLike[str] | None) -> tuple[str, str, str]:
    """
    Explains a file, a run by its ID, or the last run: the JSON document, the page for a terminal and the HTML for a
    notebook.
    """

def file_sizes(out: str | PathLike[str], names: SupportsGetItem[int, str]) -> list[int | None]:
    """
    Bytes of the named files of a prepared dataset; None for those that are missing.
    """

def machine_names() -> list[str]:
    """
    The names that `probe(as_machine=…)` takes.
    """

def open_arrow(paths: SupportsGetItem[int, str | PathLike[str]], columns: SupportsGetItem[int, str] | None, headroom: SupportsIndex | None) -> Dataset: ...
def open_folder(root: str | PathLike[str], extensions: SupportsGetItem[int, str], labels: bool, split: str | None, headroom: SupportsIndex | None) -> Dataset: ...
def open_hdf5(path: str | PathLike[str], fields: SupportsGetItem[int, tuple[str, str]] | None, headroom: SupportsIndex | None) -> Dataset: ...
def open_lines(paths: SupportsGetItem[int, str | PathLike[str]], json: str | None, headroom: SupportsIndex | None, indexes: str | PathLike[str] | None, report: Any) -> Dataset: ...
def open_npy(files: SupportsGetItem[int, tuple[str, str | PathLike[str]]], headroom: SupportsIndex | None) -> Dataset: ...
def open_parquet(paths: SupportsGetItem[int, str | PathLike[str]], columns: SupportsGetItem[int, str] | None, cache: SupportsIndex, headroom: SupportsIndex | None) -> Dataset: ...
def open_raw(field: str, path: str | PathLike[str], shape: SupportsGetItem[int, SupportsIndex], dtype: str, headroom: SupportsIndex | None) -> Dataset: ...
def open_tar(paths: SupportsGetItem[int, str | PathLike[str]], extensions: SupportsGetItem[int, str], headroom: SupportsIndex | None, indexes: str | PathLike[str] | None, report: Any) -> Dataset: ...
def open_tokens(paths: SupportsGetItem[int, str | PathLike[str]], length: SupportsIndex, dtype: str | None, as_int64: bool, documents: bool, headroom: SupportsIndex | None) -> Dataset: ...

def plan(*, job: str | PathLike[str] | None, mode: str | None, overrides: SupportsGetItem[int, str], as_machine: str | None, gpu: str | None, memory: str | None, fresh: bool, rehearsal: Incomplete, progress: Any | None) -> tuple[str, str, str, str, str]:
    """
    Searches for the best settings of a job.

    Returns the JSON document, the page for a terminal, the HTML for a notebook, and the settings under the names of
    Hugging Face and of Lightning.
    """

def predict(*, command: SupportsGetItem[int, str], shown: SupportsGetItem[int, str], gpu: str | None, with_: SupportsGetItem[int, str], alloc_conf: str | None, rehearsal: Incomplete, progress: Any | None) -> tuple[str, str, str]:
    """
    Rehearses a command and predicts its memory.

    Returns the JSON document, the page for a terminal and the HTML for a notebook. `progress` is called with one line
    at a time.
    """

def prepare_tasks(out: str | PathLike[str]) -> tuple[int, int | None]:
    """
    The numbers of map tasks and of shard tasks; none of the latter before all runs are there.
    """

def probe(*, as_machine: str | None, gpu: str | None, memory: str | None, executable: str | None, import_folders: SupportsGetItem[int, str], version: tuple[SupportsIndex, SupportsIndex]) -> tuple[str, str, str]:
    """
    Reads the machine this process runs on, or describes a recorded one.

    Returns it in three forms: the JSON document, the page for a terminal, the HTML for a notebook. Plain text, so that
    what Python makes of it can be copied, pickled and sent to workers.
    """

def read_manifest(out: str | PathLike[str]) -> str | None:
    """
    The text of the manifest of a prepared dataset; None if there is none.
    """

def record_runs(to: str, *, ended: str | None, state_dir: str | PathLike[str] | None) -> int:
    """
    Writes the rows of runs that were started with this destination and have ended: how many.
    """

def replay(*, file: str | PathLike[str], gpu: SupportsGetItem[int, str], capacity: SupportsGetItem[int, str], alloc_conf: SupportsGetItem[int, str], device: SupportsIndex | None, torch: str | None) -> tuple[str, str]:
    """
    Replays a trace or a memory snapshot: the JSON document and the page for a terminal.
    """

def report(*, what: SupportsGetItem[int, str], path: str | PathLike[str], force: bool, state_dir: str | PathLike[str] | None) -> None:
    """
    Writes the report of runs or files: the last run if none is named.
    """

def report_document(*, document: str, path: str | PathLike[str], force: bool) -> None:
    """
    Writes the report of a document that was printed as JSON.
    """

def run_of_supervisor(*, supervisor_pid: SupportsIndex, state_dir: str | PathLike[str] | None) -> str | None:
    """
    The ID of the run that this process of brimful supervises or has supervised.
    """

def run_prepare_task(out: str | PathLike[str], phase: str, task: SupportsIndex, memory: SupportsIndex) -> None:
    """
    Runs one task of a preparation that was begun in `out`.
    """

def runs(*, last: SupportsIndex | None, state_dir: str | PathLike[str] | None) -> tuple[str, str]:
    """
    The recorded runs, newest first: the JSON document and the page for a terminal.
    """

def share(value: Any, *, folder: str | PathLike[str] | None) -> Any:
    """
    Copies `value` into memory that other processes can map; into a file in `folder` if one is given.

    A list, a tuple or an iterator becomes a `SharedList`, a dict a `SharedDict`, an array or a tensor a `SharedArray`.
    """

def shared_from_handle(pid: SupportsIndex, fd: SupportsIndex, id: bytes, kind: str, at: SupportsIndex, start: SupportsIndex, step: SupportsIndex, length: SupportsIndex) -> Any:
    """
    What was pickled: how to open the copy, and which part of it this was.
    """

def size_bytes(text: str) -> int:
    """
    The bytes of a size as people write it, such as `512MiB`.
    """

def size_text(size_bytes: SupportsIndex) -> str:
    """
    A number of bytes as people read it.
    """

def survey(at: str | PathLike[str], *, report: str | PathLike[str] | None, force: bool, width: SupportsIndex, progress: Any | None) -> tuple[str, str]:
    """
    Counts the records below a directory or a URL: the JSON document and the page for a terminal. `report` is the path of
    a page with charts; `progress` gets the numbers of files that were read, and of all.
    """

def unshown_kill(*, directory: str, state_dir: str | PathLike[str] | None) -> tuple[str, str, str] | None:
    """
    Why the last watched process of this directory was killed, once, in the same forms.
    """
