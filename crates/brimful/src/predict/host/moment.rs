//! The moments of a run at which most memory may be in use.

/// A moment at which most may be in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The dataset is being read.
    Building,
    /// The last worker is sent its dataset.
    Starting,
    /// Everything is in the middle of its work.
    Training,
    /// The last worker of the evaluation is sent its dataset, beside those of the training where these stay.
    StartingEvaluation,
    /// Workers of the evaluation, beside those of the training where these stay.
    Evaluating,
    /// A checkpoint is written.
    Saving,
}

impl Moment {
    pub(crate) const ALL: [Moment; 6] = [
        Moment::Building,
        Moment::Starting,
        Moment::Training,
        Moment::StartingEvaluation,
        Moment::Evaluating,
        Moment::Saving,
    ];
}
