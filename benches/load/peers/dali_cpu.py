"""NVIDIA DALI: a pipeline on the processors, fed with views of maps that it does not copy."""

import torch
from nvidia.dali import fn, pipeline_def, types
from peers import small

PACKAGES = ("nvidia-dali-cuda130",)


def batches(folder, batch_size, threads):
    images, depths = small.mapped(folder)

    def views():
        for numbers in small.groups(small.shuffled(len(images)), batch_size):
            yield [images[number] for number in numbers], [depths[number][..., None] for number in numbers]

    @pipeline_def(
        batch_size=batch_size, num_threads=threads, device_id=None, prefetch_queue_depth=1, exec_dynamic=True
    )
    def resized():
        image, depth = fn.external_source(
            views, num_outputs=2, layout=["CHW", "HWC"], dtype=[types.UINT8, types.FLOAT], no_copy=True
        )
        named = {"size": (small.SIDE, small.SIDE), "interp_type": types.INTERP_LINEAR, "antialias": True}
        return fn.resize(image, **named), fn.resize(depth, **named)

    pipeline = resized()
    while True:
        try:
            outputs = pipeline.run()
        except StopIteration:
            return
        image, depth = (torch.from_dlpack(output.as_tensor()) for output in outputs)
        yield {"image": image, "depth": depth[..., 0]}
