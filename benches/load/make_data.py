"""Makes the data of the loaders' tables, once, in every form that a loader wants.

    python benches/load/make_data.py FOLDER [--samples 1449] [--tokens 200000000] [--meshes 1600]
        [--only FORM]

FORM is one of nyu.h5, npy, arrow, mds, litdata, tar, text, meshes. A form that is already there stays. The
whole of it is six times 3.1 GB of images and depths, and 1 GB of tokens and meshes.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import numpy as np

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
IMAGE, DEPTH = (3, 640, 480), (640, 480)
CHUNK = 64 << 20  # of the forms in chunks, about what their makers recommend
BLOCK = 512  # tokens


def samples(folder):
    """Every image and depth of the HDF5 file."""
    import h5py

    with h5py.File(folder / "nyu.h5") as file:
        images, depths = file["images"], file["depths"]
        for number in range(len(images)):
            yield images[number], depths[number]


def make_hdf5(folder, output, asked):
    script = EXAMPLES / "nyu-depth/make_data.py"
    command = [sys.executable, script, "--samples", str(asked.samples), "--output", output]
    subprocess.run(command, check=True)


def make_npy(folder, output, asked):
    """Two arrays to be mapped."""
    output.mkdir()
    images, depths = (
        np.lib.format.open_memmap(output / name, "w+", kind, (asked.samples, *shape))
        for name, kind, shape in (("images.npy", np.uint8, IMAGE), ("depths.npy", np.float32, DEPTH))
    )
    for number, (image, depth) in enumerate(samples(folder)):
        images[number], depths[number] = image, depth


def nested(values, shape):
    """A column of Arrow whose type says the shape of each row."""
    import pyarrow as pa

    array = pa.array(values.reshape(-1))
    for length in reversed(shape):
        array = pa.FixedSizeListArray.from_arrays(array, length)
    return array


def make_arrow(folder, output, asked):
    """The stream format, as Hugging Face datasets keeps it; four samples to a batch."""
    import pyarrow as pa

    output.mkdir()
    writer = None
    rows = []

    def write():
        nonlocal writer
        columns = (nested(np.stack(column), column[0].shape) for column in zip(*rows, strict=True))
        batch = pa.record_batch(list(columns), names=["image", "depth"])
        writer = writer or pa.ipc.new_stream(str(output / "data.arrow"), batch.schema)
        writer.write_batch(batch)
        rows.clear()

    for sample in samples(folder):
        rows.append(sample)
        if len(rows) == 4:
            write()
    if rows:
        write()
    writer.close()


def make_mds(folder, output, asked):
    from streaming import MDSWriter

    columns = {"image": "ndarray:uint8:3,640,480", "depth": "ndarray:float32:640,480"}
    with MDSWriter(out=str(output), columns=columns, size_limit=CHUNK) as writer:
        for image, depth in samples(folder):
            writer.write({"image": image, "depth": depth})


def one_for_litdata(place):
    """Called in a process of litdata's own."""
    import h5py

    path, number = place
    with h5py.File(path) as file:
        return {"image": file["images"][number], "depth": file["depths"][number]}


def make_litdata(folder, output, asked):
    import litdata

    # It copies through a cache of its own, else in the home.
    os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = str(folder / "litdata-cache")
    os.environ["DATA_OPTIMIZER_DATA_CACHE_FOLDER"] = str(folder / "litdata-cache")
    places = [(str(folder / "nyu.h5"), number) for number in range(asked.samples)]
    named = {"chunk_bytes": CHUNK, "num_workers": 1, "start_method": "spawn"}
    litdata.optimize(one_for_litdata, places, str(output), **named)
    shutil.rmtree(folder / "litdata-cache", ignore_errors=True)


def make_tar(folder, output, asked):
    """Shards of WebDataset with raw bytes, of about 64 MB."""
    import io

    output.mkdir()
    shard = None
    for number, arrays in enumerate(samples(folder)):
        if number % 32 == 0:
            if shard:
                shard.close()
            shard = tarfile.open(output / f"{number // 32:05}.tar", "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115
        for name, array in zip(("image", "depth"), arrays, strict=True):
            entry = tarfile.TarInfo(f"{number:06}.{name}")
            entry.size = array.nbytes
            shard.addfile(entry, io.BytesIO(array.tobytes()))
    shard.close()


def make_text(folder, output, asked):
    """Tokens as one long array, and the same as blocks in Arrow. Frequent tokens are frequent, as in text."""
    import pyarrow as pa

    output.mkdir()
    random = np.random.default_rng(0)
    piece = 1 << 22
    left = asked.tokens // BLOCK * BLOCK
    kind = pa.list_(pa.uint16(), BLOCK)
    schema = pa.schema([("tokens", kind)])
    with (
        (output / "tokens.bin").open("wb") as file,
        pa.ipc.new_stream(str(output / "blocks.arrow"), schema) as writer,
    ):
        while left:
            tokens = (50_000 ** random.random(min(piece, left), dtype=np.float32)).astype(np.uint16)
            tokens.tofile(file)
            blocks = nested(tokens.reshape(-1, BLOCK), (BLOCK,))
            for start in range(0, len(blocks), 1000):
                writer.write_batch(pa.record_batch([blocks[start : start + 1000]], schema))
            left -= len(tokens)


def make_meshes(folder, output, asked):
    script = EXAMPLES / "modelnet-voxel/make_data.py"
    subprocess.run([sys.executable, script, "--meshes", str(asked.meshes), "--output", output], check=True)


FORMS = {
    "nyu.h5": make_hdf5,
    "npy": make_npy,
    "arrow": make_arrow,
    "mds": make_mds,
    "litdata": make_litdata,
    "tar": make_tar,
    "text": make_text,
    "meshes": make_meshes,
}


def main():
    """Make what is missing, and write down how much there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--samples", type=int, default=1449)
    parser.add_argument("--tokens", type=int, default=200_000_000)
    parser.add_argument("--meshes", type=int, default=1600)
    parser.add_argument("--only", action="append", choices=FORMS, help="may be given more than once")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    facts = {"nyu": asked.samples, "text": asked.tokens // BLOCK, "meshes": asked.meshes}
    noted = asked.folder / "samples.json"
    if noted.exists() and json.loads(noted.read_text()) != facts:
        sys.exit(
            f"{asked.folder} holds {noted.read_text()}, asked for is {json.dumps(facts)}: take another folder"
        )
    noted.write_text(json.dumps(facts))
    for name, make in FORMS.items():
        output = asked.folder / name
        if output.exists() or (asked.only and name not in asked.only):
            continue
        print(name, flush=True)
        try:
            make(asked.folder, output, asked)
        except BaseException as error:
            # Half of a form must not be taken for a whole one.
            if output.is_dir():
                shutil.rmtree(output)
            output.unlink(missing_ok=True)
            if not isinstance(error, ImportError):
                raise
            print(f"{name} is left out: {error}")
    # What is still on its way to the disk cannot be dropped from the page cache.
    os.sync()


if __name__ == "__main__":
    main()
