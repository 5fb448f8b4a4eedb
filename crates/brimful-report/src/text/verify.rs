//! The page of `brimful verify`.

use brimful::units::Bytes;

use crate::json::{VerifiedBytes, VerifiedRate, VerifyDocument};
use crate::text::page::{Page, Role, wrap};
use crate::text::speed::rate;
use crate::text::table::table;

/// A change of what others hold by this much is worth a line.
const NOTABLE_CHANGE: u64 = 32 << 20;

/// One table: each value as predicted and as measured, and the error.
pub fn verify(document: &VerifyDocument, page: &Page) -> String {
    let gpu = &document.gpu;
    let driver = gpu.driver_version.as_ref();
    let title = [
        Some(gpu.name.clone()),
        driver.map(|driver| format!("driver {driver}")),
        Some(format!("torch {}", document.torch_version)),
        Some(format!("{} steps", document.steps)),
    ];
    let title: Vec<String> = title.into_iter().flatten().collect();
    let mut out = String::new();
    for line in wrap(&title.join(page.dot()), page.width) {
        out.push_str(&page.paint(Role::Strong, &line));
        out.push('\n');
    }
    let rows = [
        bytes_row("allocated", &document.allocated),
        bytes_row("reserved", &document.reserved),
        bytes_row("context", &document.context),
        bytes_row("total", &document.total),
        rate_row(&document.steps_per_second),
    ];
    let mut body = table(page, &["", "predicted", "measured", "error"], &rows);
    for line in notes(document) {
        body.push_str(&page.hang("  ", 2, &line));
    }
    page.section(&mut out, "Predicted and measured", &body);
    out
}

fn bytes_row(name: &str, bytes: &VerifiedBytes) -> Vec<String> {
    let shown = |bytes: u64| Bytes(bytes).to_string();
    vec![
        name.to_owned(),
        shown(bytes.predicted_bytes),
        bytes.measured_bytes.map_or_else(missing, shown),
        bytes.error.map_or_else(missing, percent),
    ]
}

fn rate_row(found: &VerifiedRate) -> Vec<String> {
    vec![
        "steps/s".to_owned(),
        found.predicted.map_or_else(missing, |p| rate(p.likely)),
        found.measured.map_or_else(missing, rate),
        found.error.map_or_else(missing, percent),
    ]
}

fn missing() -> String {
    "-".to_owned()
}

/// Positive where the prediction is too high.
fn percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

fn notes(document: &VerifyDocument) -> Vec<String> {
    let mut notes = Vec::new();
    if document.outcome == VerifyDocument::OUT_OF_MEMORY {
        notes.push(format!(
            "The GPU's memory ran out after {} of {} steps, so the run was not measured.",
            document.steps, document.requested_steps
        ));
    }
    if let (Some(is_safe), Some(safe)) = (document.is_safe(), document.total.safe_bytes) {
        let words = if is_safe { "stayed below" } else { "exceeded" };
        notes.push(format!(
            "The measured total {words} the safe value, {}.",
            Bytes(safe)
        ));
    }
    let speed = &document.steps_per_second;
    if let (Some(range), Some(measured)) = (speed.predicted, speed.measured) {
        let is_inside = (range.low..=range.high).contains(&measured);
        let words = if is_inside { "inside" } else { "outside" };
        notes.push(format!(
            "The measured speed is {words} the predicted range, {} to {} steps/s; {} steps were timed.",
            rate(range.low),
            rate(range.high),
            document.timed_steps
        ));
    }
    let gpu = &document.gpu;
    if let (Some(before), Some(after)) = (gpu.used_before_bytes, gpu.used_after_bytes)
        && after.abs_diff(before) >= NOTABLE_CHANGE
    {
        notes.push(format!(
            "Others used {} of the GPU before the run and {} after it: context and total are uncertain by the difference.",
            Bytes(before),
            Bytes(after)
        ));
    }
    if document.outcome == VerifyDocument::FINISHED && document.context.measured_bytes.is_none() {
        notes.push(
            "The context could not be measured: the driver's values do not match those of PyTorch."
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{LowLikelyHigh, VerifiedGpu};

    fn document() -> VerifyDocument {
        let mib = Bytes::from_mib;
        VerifyDocument {
            schema_version: VerifyDocument::SCHEMA_VERSION,
            brimful_version: "0.1.0".into(),
            gpu: VerifiedGpu {
                name: "Tesla T4".into(),
                model: "t4".into(),
                total_bytes: Some(Bytes::from_gib(15).get()),
                driver_version: Some("535.104.05".into()),
                used_before_bytes: Some(mib(3).get()),
                used_after_bytes: Some(mib(3).get()),
            },
            world_size: 1,
            torch_version: "2.13.0+cu130".into(),
            cuda_version: Some("13.0".into()),
            cudnn_version: None,
            alloc_conf: String::new(),
            outcome: VerifyDocument::FINISHED.into(),
            requested_steps: 10,
            steps: 10,
            timed_steps: 7,
            isolation: "overlay".into(),
            allocated: VerifiedBytes::of(mib(1000), None, Some(mib(1000))),
            reserved: VerifiedBytes::of(mib(1200), None, Some(mib(1250))),
            context: VerifiedBytes::of(mib(160), Some(mib(220)), Some(mib(142))),
            total: VerifiedBytes::of(mib(1360), Some(mib(1500)), Some(mib(1392))),
            steps_per_second: VerifiedRate::of(
                Some(LowLikelyHigh {
                    low: 1.5,
                    likely: 2.0,
                    high: 2.5,
                }),
                Some(1.6),
            ),
            retries: 0,
            caveats: Vec::new(),
        }
    }

    #[test]
    fn the_table_has_a_row_for_each_value() {
        let page = verify(&document(), &Page::plain(80));
        let expected = "\
Tesla T4 · driver 535.104.05 · torch 2.13.0+cu130 · 10 steps

Predicted and measured
             predicted  measured    error
  allocated   1000 MiB  1000 MiB   +0.0 %
  reserved    1.17 GiB  1.22 GiB   -4.0 %
  context      160 MiB   142 MiB  +12.7 %
  total       1.33 GiB  1.36 GiB   -2.3 %
  steps/s         2.00      1.60  +25.0 %
  The measured total stayed below the safe value, 1.46 GiB.
  The measured speed is inside the predicted range, 1.50 to 2.50 steps/s; 7
  steps were timed.
";
        assert_eq!(page, expected);
    }

    #[test]
    fn what_makes_the_values_uncertain_is_shown() {
        let mut changed = document();
        changed.gpu.used_after_bytes = Some(Bytes::from_mib(203).get());
        changed.context = VerifiedBytes::of(Bytes::from_mib(160), None, None);
        changed.total = VerifiedBytes::of(
            Bytes::from_mib(1360),
            Some(Bytes::from_mib(1500)),
            Some(Bytes::from_mib(1501)),
        );
        let page = verify(&changed, &Page::plain(80));
        assert!(page.contains("Others used 3 MiB of the GPU before the run and 203 MiB after it"));
        assert!(page.contains("The context could not be measured"));
        assert!(page.contains("The measured total exceeded the safe value"));
        changed.outcome = VerifyDocument::OUT_OF_MEMORY.into();
        changed.steps = 4;
        let page = verify(&changed, &Page::plain(80));
        assert!(page.contains("memory ran out after 4 of 10 steps"));
    }
}
