//! One captured step: its operators as the rehearsal saw them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What one step computes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapturedStep {
    pub ops: Vec<CapturedOp>,
    /// Calls that were not kept because there were too many different ones.
    pub left_out: u64,
    /// Kernels that the phantom was asked to launch.
    pub launches: u64,
    /// Those of them that belong to an operator of `ops`.
    pub explained_launches: u64,
    /// What launched the others, such as `triton: softmax_kernel`.
    pub unexplained: Vec<String>,
    /// Batches of the training data that the step took; 0 where the script makes its own.
    pub batches: u64,
    /// fp32 matrix products may use TF32.
    pub matmul_tf32: bool,
    /// fp32 convolutions may use TF32.
    pub convolution_tf32: bool,
    /// `torch.compile` was asked for; what it would have compiled was captured as it is.
    pub uncompiled: bool,
}

/// An operator, and how often it was called with the same shapes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapturedOp {
    /// As PyTorch names it, such as `aten::mm`.
    pub op: String,
    pub phase: OpPhase,
    /// Of the largest tensor, such as `float16`.
    pub dtype: String,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// By PyTorch's formulas; 0 for what has none.
    pub flops: u64,
    /// Tensors that it was given.
    pub tensors: u64,
    /// Of the first tensors that it was given.
    pub shapes: Vec<Vec<u64>>,
    /// Of the first tensor that it made.
    pub output: Vec<u64>,
    pub channels_last: bool,
    /// Of convolutions.
    pub stride: Vec<u64>,
    pub groups: u64,
    pub transposed: bool,
    /// Which gradients a convolution's backward pass makes: of its input, weight and bias.
    pub output_mask: Vec<bool>,
    pub count: u64,
    pub launches: u64,
}

/// Part of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpPhase {
    #[default]
    Forward,
    Backward,
    Optimizer,
    /// Anything else, such as evaluation.
    #[serde(other)]
    Other,
}

impl CapturedOp {
    /// The name without its namespace.
    pub fn short_name(&self) -> &str {
        self.op.split_once("::").map_or(&self.op, |(_, name)| name)
    }

    pub fn precision(&self) -> Precision {
        match self.dtype.as_str() {
            "float16" => Precision::Half,
            "bfloat16" => Precision::Bfloat16,
            "float64" | "complex128" => Precision::Double,
            name if name.starts_with("float8") => Precision::Half,
            _ => Precision::Single,
        }
    }
}

/// The type of numbers of an operator, as far as it decides the speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precision {
    Half,
    Bfloat16,
    #[default]
    Single,
    Double,
}

impl Precision {
    pub fn bytes(self) -> f64 {
        match self {
            Precision::Half | Precision::Bfloat16 => 2.0,
            Precision::Single => 4.0,
            Precision::Double => 8.0,
        }
    }
}

impl CapturedStep {
    /// The operators of the training itself: an evaluation may lie between two steps.
    pub fn of_training(&self) -> impl Iterator<Item = &CapturedOp> {
        self.ops.iter().filter(|op| op.phase != OpPhase::Other)
    }

    /// The type of numbers that most operations are made with.
    pub fn main_precision(&self) -> Precision {
        let mut by_type: BTreeMap<Precision, f64> = BTreeMap::new();
        for op in self.of_training() {
            *by_type.entry(op.precision()).or_default() += op.flops as f64 * op.count as f64;
        }
        let most = by_type.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        most.map_or(Precision::Single, |(precision, _)| precision)
    }

    /// Operations by PyTorch's formulas.
    pub fn flops(&self) -> f64 {
        let of = |op: &CapturedOp| op.flops as f64 * op.count as f64;
        self.of_training().map(of).sum()
    }

    /// Bytes that operators read and write.
    pub fn bytes(&self) -> f64 {
        let of =
            |op: &CapturedOp| (op.read_bytes as f64 + op.written_bytes as f64) * op.count as f64;
        self.of_training().map(of).sum()
    }

    /// Calls of operators.
    pub fn calls(&self) -> u64 {
        self.of_training()
            .map(|op| op.count)
            .fold(0, u64::saturating_add)
    }
}
