//! A whole step: the kernels of its operators, and their time by part.

use serde::{Deserialize, Serialize};

use crate::speed::attention::Attention;
use crate::speed::convolution::{self, Convolution};
use crate::speed::gpu::GpuRates;
use crate::speed::launches;
use crate::speed::matmul::{self, Product};
use crate::speed::memory_bound;
use crate::speed::op::{CapturedOp, CapturedStep, OpPhase, Precision};
use crate::speed::parameters::{Parameter, Parameters};

/// What a step's time is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Matmul,
    Convolution,
    Attention,
    MemoryBound,
    Optimizer,
    Launches,
}

/// Seconds of the GPU for one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondsByPart {
    pub matmul: f64,
    pub convolution: f64,
    pub attention: f64,
    pub memory_bound: f64,
    pub optimizer: f64,
    /// Between kernels.
    pub launches: f64,
}

impl SecondsByPart {
    pub fn total(&self) -> f64 {
        self.matmul
            + self.convolution
            + self.attention
            + self.memory_bound
            + self.optimizer
            + self.launches
    }

    fn add(&mut self, part: Part, seconds: f64) {
        let place = match part {
            Part::Matmul => &mut self.matmul,
            Part::Convolution => &mut self.convolution,
            Part::Attention => &mut self.attention,
            Part::MemoryBound => &mut self.memory_bound,
            Part::Optimizer => &mut self.optimizer,
            Part::Launches => &mut self.launches,
        };
        *place += seconds;
    }
}

/// The kernels of a step, without a GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kernels {
    kernels: Vec<Counted>,
    /// Launches in all.
    launches: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Counted {
    kernel: Kernel,
    count: f64,
    optimizer: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kernel {
    Product {
        product: Product,
        batched: bool,
        bytes: f64,
        precision: Precision,
        tf32: bool,
    },
    Convolution(Convolution),
    Attention(Attention),
    Recurrent {
        flops: f64,
        bytes: f64,
        precision: Precision,
    },
    Memory {
        class: Parameter,
        bytes: f64,
    },
}

impl Kernels {
    pub fn of(step: &CapturedStep) -> Kernels {
        let mut kernels = Vec::new();
        let mut n_launches = 0.0;
        for op in step.of_training() {
            let count = op.count as f64;
            n_launches += launches::of(op) * count;
            for kernel in kernels_of(op, step) {
                kernels.push(Counted {
                    kernel,
                    count,
                    optimizer: op.phase == OpPhase::Optimizer,
                });
            }
        }
        Kernels {
            kernels,
            launches: n_launches,
        }
    }

    /// Launches of kernels in one step.
    pub fn launches(&self) -> f64 {
        self.launches
    }

    /// Seconds on a GPU, if the host launches fast enough.
    pub fn seconds(&self, gpu: &GpuRates, p: &Parameters) -> SecondsByPart {
        let mut by_part = SecondsByPart::default();
        for counted in &self.kernels {
            let (part, seconds) = counted.kernel.seconds(gpu, p);
            let part = if counted.optimizer {
                Part::Optimizer
            } else {
                part
            };
            by_part.add(part, seconds * counted.count);
        }
        by_part.add(
            Part::Launches,
            self.launches * p.get(Parameter::Launch) * 1e-6,
        );
        by_part
    }
}

impl Kernel {
    fn seconds(&self, gpu: &GpuRates, p: &Parameters) -> (Part, f64) {
        let moving = |bytes: f64| {
            gpu.memory_bytes(bytes) / (gpu.bandwidth * p.get(Parameter::MatmulBandwidth))
        };
        match self {
            Kernel::Product {
                product,
                batched,
                bytes,
                precision,
                tf32,
            } => {
                let (rate, extra) = matmul::rate(*precision, *tf32, *batched, gpu, p);
                let computing = product.seconds(rate, gpu.multiprocessors, extra);
                (Part::Matmul, matmul::together(computing, moving(*bytes)))
            }
            Kernel::Convolution(convolution) => (Part::Convolution, convolution.seconds(gpu, p)),
            Kernel::Attention(attention) => (Part::Attention, attention.seconds(gpu, p)),
            Kernel::Recurrent {
                flops,
                bytes,
                precision,
            } => {
                let (rate, _) = matmul::rate(*precision, true, false, gpu, p);
                let computing = flops / (rate * p.get(Parameter::Recurrent));
                (Part::Matmul, matmul::together(computing, moving(*bytes)))
            }
            Kernel::Memory { class, bytes } => {
                let seconds = gpu.memory_bytes(*bytes) / (gpu.bandwidth * p.get(*class));
                (Part::MemoryBound, seconds)
            }
        }
    }
}

fn kernels_of(op: &CapturedOp, step: &CapturedStep) -> Vec<Kernel> {
    let name = op.short_name();
    let moved = op.read_bytes as f64 + op.written_bytes as f64;
    if let Some((product, batched)) = product_of(op) {
        return vec![Kernel::Product {
            product,
            batched,
            bytes: moved,
            precision: op.precision(),
            tf32: step.matmul_tf32,
        }];
    }
    if name.contains("convolution") {
        let found = convolution::of(op, step.convolution_tf32);
        if !found.is_empty() {
            return found.into_iter().map(Kernel::Convolution).collect();
        }
    }
    if name.contains("attention") && op.flops > 0 {
        return vec![Kernel::Attention(Attention {
            backward: name.ends_with("backward"),
            flops: op.flops as f64,
            bytes: moved,
            precision: op.precision(),
        })];
    }
    if op.flops > 0 {
        return vec![Kernel::Recurrent {
            flops: op.flops as f64,
            bytes: moved,
            precision: op.precision(),
        }];
    }
    vec![Kernel::Memory {
        class: memory_bound::class(op),
        bytes: memory_bound::bytes(op),
    }]
}

/// The sizes of a matrix product, and whether it is one of a batch.
fn product_of(op: &CapturedOp) -> Option<(Product, bool)> {
    let (left, right, batched) = match (op.short_name(), &op.shapes[..]) {
        ("mm" | "_scaled_mm" | "_int_mm", [left, right, ..])
        | ("addmm" | "_addmm_activation", [_, left, right, ..]) => (left, right, false),
        ("bmm", [left, right, ..]) | ("baddbmm", [_, left, right, ..]) => (left, right, true),
        _ => return None,
    };
    let (batch, rows, depth) = match left[..] {
        [rows, depth] => (1, rows, depth),
        [batch, rows, depth] => (batch, rows, depth),
        _ => return None,
    };
    let columns = *right.last()?;
    let product = Product {
        batch: batch as f64,
        rows: rows as f64,
        columns: columns as f64,
        depth: depth as f64,
    };
    Some((product, batched))
}
