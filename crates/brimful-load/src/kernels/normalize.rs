//! `value * factor + offset`, with a factor and an offset for each channel.

use multiversion::multiversion;

/// What is done to the values of one channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub factor: f32,
    pub offset: f32,
}

impl Line {
    #[inline(always)]
    fn at(self, value: f32) -> [u8; 4] {
        (value * self.factor + self.offset).to_ne_bytes()
    }
}

/// Runs of `run` values of one channel after the other, in the order of `lines`, again and again: planes where a run is
/// a plane, channels side by side where it is one value. Floats go out.
pub fn normalize_bytes(lines: &[Line], run: usize, from: &[u8], to: &mut [u8]) {
    let (to, _) = to.as_chunks_mut::<4>();
    normalize(lines, run, from, to, bytes);
}

/// The same of floats, which may lie anywhere.
pub fn normalize_floats(lines: &[Line], run: usize, from: &[u8], to: &mut [u8]) {
    let (from, _) = from.as_chunks::<4>();
    let (to, _) = to.as_chunks_mut::<4>();
    normalize(lines, run, from, to, floats);
}

fn normalize<T>(
    lines: &[Line],
    run: usize,
    from: &[T],
    to: &mut [[u8; 4]],
    kernel: impl Fn(&[Line], &[T], &mut [[u8; 4]]),
) {
    if run == 1 || lines.len() == 1 {
        return kernel(lines, from, to);
    }
    let run = run.max(1);
    let runs = from.chunks_exact(run).zip(to.chunks_exact_mut(run));
    for (line, (from, to)) in lines.iter().cycle().zip(runs) {
        kernel(std::slice::from_ref(line), from, to);
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn bytes(lines: &[Line], from: &[u8], to: &mut [[u8; 4]]) {
    side_by_side(lines, from, to, f32::from);
}

#[multiversion(targets("x86_64+avx2"))]
fn floats(lines: &[Line], from: &[[u8; 4]], to: &mut [[u8; 4]]) {
    side_by_side(lines, from, to, f32::from_ne_bytes);
}

#[inline(always)]
fn side_by_side<T: Copy>(lines: &[Line], from: &[T], to: &mut [[u8; 4]], float: impl Fn(T) -> f32) {
    match *lines {
        [line] => {
            for (&from, to) in from.iter().zip(to) {
                *to = line.at(float(from));
            }
        }
        [red, green, blue] => {
            let (from, _) = from.as_chunks::<3>();
            let (to, _) = to.as_chunks_mut::<3>();
            for (from, to) in from.iter().zip(to) {
                *to = [
                    red.at(float(from[0])),
                    green.at(float(from[1])),
                    blue.at(float(from[2])),
                ];
            }
        }
        _ => {
            for ((&from, to), line) in from.iter().zip(to).zip(lines.iter().cycle()) {
                *to = line.at(float(from));
            }
        }
    }
}
