"""Ray Data: `read_images` of shuffled files, which decodes and resizes, and Parquet files."""

import common
import ray_session
from ray import data
from ray.data.datasource import FileShuffleConfig, Partitioning


def main():
    """Make the dataset. The label is the name of the class."""
    folder = str(common.DATA / "images")
    with ray_session.session():
        made = data.read_images(
            folder,
            size=(common.SIDE, common.SIDE),
            mode="RGB",
            shuffle=FileShuffleConfig(seed=common.SEED),
            partitioning=Partitioning("dir", field_names=["label"], base_dir=folder),
        )
        made.write_parquet(str(common.RESULT), compression="none")
    common.report(samples=ray_session.rows())


if __name__ == "__main__":
    main()
