//! The GPUs of the tables, by the names of the catalogue.

use brimful::cards;
use brimful::speed::GpuRates;

/// The catalogue's name for a GPU of a table; nothing for those that are not scored.
pub(super) fn of_truth(name: &str) -> Option<&'static str> {
    let plain = name.replace('_', " ");
    Some(match plain.as_str() {
        "rtx3090" | "RTX 3090" => "rtx-3090",
        "rtx4090" => "rtx-4090",
        "rtx5090" => "rtx-5090",
        "pro6000maxq" => "rtx-pro-6000-max-q",
        "NVIDIA A100-PCIE-40GB" => "a100-pcie-40gb",
        "NVIDIA A100 80GB PCIe" => "a100-pcie-80gb",
        "NVIDIA H100 80GB HBM3" => "h100-80gb",
        "NVIDIA L4" => "l4",
        "Tesla P100-PCIE-16GB" => "p100-16gb",
        "Tesla P4" => P4,
        "Tesla T4" => "t4",
        "Tesla V100-PCIE-32GB" => V100_PCIE,
        _ => return None,
    })
}

/// The same for Lambda's table, whose names begin with the server's.
pub(super) fn of_lambda(name: &str) -> Option<&'static str> {
    const NAMES: [(&str, &str); 12] = [
        ("A100 80GB PCIe", "a100-pcie-80gb"),
        ("A100 80GB SXM4", "a100-80gb"),
        ("A100 40GB PCIe", "a100-pcie-40gb"),
        ("H100 80GB PCIe Gen5", "h100-pcie-80gb"),
        ("H100 80GB SXM5", "h100-80gb"),
        ("LambdaCloud A10", "a10"),
        ("LambdaCloud V100 16GB", "v100-sxm2-16gb"),
        ("Quadro RTX 8000", "quadro-rtx-8000"),
        ("RTX 3090", "rtx-3090"),
        ("RTX 4090", "rtx-4090"),
        ("RTX 6000 Ada", "rtx-6000-ada"),
        ("RTX A6000", "rtx-a6000"),
    ];
    let found = NAMES.iter().find(|(end, _)| name.ends_with(end));
    found.map(|(_, id)| *id)
}

/// Half-precision trainings of the fit ran on it.
pub(super) const FITTED: &str = "rtx-3090";

// Not in the catalogue; by their data sheets, and the best fp32 products of NeuSight's tables.
const P4: &str = "p4";
const V100_PCIE: &str = "v100-pcie-32gb";

/// The rates of a GPU, as the model takes them.
pub(super) fn rates(id: &str) -> GpuRates {
    let other =
        |single: f64, half: f64, sustained: f64, bandwidth: f64, l2: f64, count: f64| GpuRates {
            single: single * 1e12,
            half: half * 1e12,
            bfloat16: single * 1e12,
            tf32: None,
            tensor_limits: None,
            sustained_single: Some(sustained * 1e12),
            bandwidth: bandwidth * 1e9,
            l2_bytes: l2 * 1_048_576.0,
            multiprocessors: count,
        };
    match id {
        P4 => other(5.5, 5.5, 4.9, 192.0, 2.0, 20.0),
        V100_PCIE => other(14.1, 112.0, 13.9, 900.0, 6.0, 80.0),
        id => {
            let card = cards::find(id).expect("a card of the catalogue");
            GpuRates::of(card).expect("a card with rates")
        }
    }
}

/// The same for a GPU on which nobody has measured anything.
pub(super) fn rates_by_data_sheet(id: &str) -> GpuRates {
    match id {
        P4 => GpuRates {
            sustained_single: Some(5.5e12 * 0.7),
            ..rates(id)
        },
        V100_PCIE => GpuRates {
            sustained_single: Some(14.1e12 * 0.92),
            ..rates(id)
        },
        id => {
            let card = cards::find(id).expect("a card of the catalogue");
            GpuRates::by_data_sheet(card).expect("a card with rates")
        }
    }
}
