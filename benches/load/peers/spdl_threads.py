"""SPDL: its pipeline of threads, over maps."""

import torch
from peers import small
from spdl.pipeline import PipelineBuilder

PACKAGES = ("spdl",)


def batches(folder, batch_size, threads):
    torch.set_num_threads(1)
    images, depths = small.mapped(folder)

    def resize(number):
        return small.small(images[number]), small.small(depths[number])

    pipeline = (
        PipelineBuilder()
        .add_source(small.shuffled(len(images)))
        .pipe(resize, concurrency=threads)
        .aggregate(batch_size)
        .pipe(small.together)
        .add_sink(1)
        .build(num_threads=threads)
    )
    with pipeline.auto_stop():
        yield from pipeline
