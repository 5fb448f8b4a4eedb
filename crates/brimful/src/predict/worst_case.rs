//! A range: the same run with balanced and with unfavourable values.

use super::caveats::CaveatKind;
use super::footprint::{FitVerdict, Footprint};
use crate::units::Bytes;

/// Differences below this are no range.
const MIN_DIFFERENCE: u64 = 1 << 20;

impl Footprint {
    /// This footprint, of the balanced case, beside that of the worst case on the same GPU.
    ///
    /// It fits if the worst case does. If only the balanced case does, it is tight.
    #[must_use]
    pub fn with_worst_case(mut self, worst: &Footprint) -> Footprint {
        let difference = worst.device.safe.saturating_sub(self.device.safe);
        if difference < Bytes(MIN_DIFFERENCE) {
            for caveat in &mut self.caveats {
                if matches!(
                    caveat.kind,
                    CaveatKind::ValueDependentShape | CaveatKind::AssumedValues
                ) {
                    caveat.text.push_str(". Both need the same memory");
                }
            }
        } else {
            self.headroom = worst.headroom;
            self.verdict = match (self.verdict, worst.verdict) {
                (FitVerdict::Fits, FitVerdict::Fits) => FitVerdict::Fits,
                (FitVerdict::DoesNotFit, _) => FitVerdict::DoesNotFit,
                _ => FitVerdict::Tight,
            };
        }
        self.worst_case = Some(worst.device.at_least(self.device));
        self
    }
}
