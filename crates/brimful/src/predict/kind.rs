//! What memory is for.

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Parameters and buffers.
    Weights,
    Gradients,
    OptimizerState,
    /// Made in the forward pass and kept for the backward pass.
    Activations,
    /// Made and freed within a pass: results on their way, gradients of activations, scratch memory of kernels.
    Temporaries,
    /// Scratch memory that a library keeps for good.
    Workspaces,
    /// Batches, and what the script keeps on the card besides.
    Other,
}

impl Kind {
    pub const ALL: [Kind; 7] = [
        Kind::Weights,
        Kind::Gradients,
        Kind::OptimizerState,
        Kind::Activations,
        Kind::Temporaries,
        Kind::Workspaces,
        Kind::Other,
    ];

    pub const fn id(self) -> &'static str {
        match self {
            Kind::Weights => "weights",
            Kind::Gradients => "gradients",
            Kind::OptimizerState => "optimizer_state",
            Kind::Activations => "activations",
            Kind::Temporaries => "temporaries",
            Kind::Workspaces => "workspaces",
            Kind::Other => "other",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}
