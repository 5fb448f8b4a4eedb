//! How long it takes to read OFF files and to make voxels of them.
//!
//! `cargo run --release -p brimful-load --example mesh_speed -- FOLDER [RESOLUTION]`
#![expect(clippy::print_stdout, reason = "it is for people to read")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brimful_load::kernels::{MeshLimit, Occupied, Placement, for_each_occupied, parse_off};

const LIMIT: MeshLimit = MeshLimit {
    vertices: 1 << 22,
    triangles: 1 << 22,
};
const ROUNDS: u32 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let folder = arguments.next().ok_or("expected a folder of OFF files")?;
    let resolution = match arguments.next() {
        Some(text) => text.to_string_lossy().parse()?,
        None => 32,
    };
    let mut paths = Vec::new();
    list(Path::new(&folder), &mut paths)?;
    let files = paths
        .iter()
        .map(std::fs::read)
        .collect::<Result<Vec<_>, _>>()?;
    let bytes: usize = files.iter().map(Vec::len).sum();
    println!("{} meshes, {bytes} bytes", files.len());

    let mut meshes = vec![(Vec::new(), Vec::new()); files.len()];
    let mut grid = vec![0_f32; resolution * resolution * resolution];
    let mut best = [Duration::MAX; 3];
    for _ in 0..ROUNDS {
        let start = processor_time()?;
        for ((file, path), (vertices, triangles)) in files.iter().zip(&paths).zip(&mut meshes) {
            parse_off(file, LIMIT, vertices, triangles)
                .map_err(|error| format!("{}: {error:?}", path.display()))?;
        }
        best[0] = best[0].min(processor_time()?.saturating_sub(start));

        for (at, occupied) in [Occupied::Points, Occupied::Surface]
            .into_iter()
            .enumerate()
        {
            let start = processor_time()?;
            for ((vertices, triangles), path) in meshes.iter().zip(&paths) {
                grid.fill(0.0);
                let placement = Placement::new(vertices, triangles, resolution)
                    .ok_or_else(|| format!("{} has no extent", path.display()))?;
                for_each_occupied(
                    vertices,
                    triangles,
                    resolution,
                    occupied,
                    &placement,
                    |at| {
                        grid[at] = 1.0;
                    },
                );
                std::hint::black_box(&grid);
            }
            best[1 + at] = best[1 + at].min(processor_time()?.saturating_sub(start));
        }
    }
    for (what, time) in ["read", "voxels of points", "voxels of the surface"]
        .into_iter()
        .zip(best)
    {
        let ms = time.as_secs_f64() * 1e3 / files.len() as f64;
        println!("{what:22}{ms:.3} ms of processor time per mesh");
    }
    Ok(())
}

/// Of this thread; other work on the machine is not counted.
fn processor_time() -> Result<Duration, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split(' ').next().unwrap_or_default().parse()?;
    Ok(Duration::from_nanos(nanoseconds))
}

fn list(folder: &Path, paths: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "off") {
            paths.push(path);
        }
    }
    Ok(())
}
