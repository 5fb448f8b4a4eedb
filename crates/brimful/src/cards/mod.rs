//! A catalogue of GPUs: what the driver says of each, and what PyTorch sees.
//!
//! Used to answer for a card that is not here (`brimful probe --gpu t4`), and to fill in what an old driver keeps
//! quiet about. A figure is measured (somebody's machine printed it), from a data sheet, or estimated, and says which.

mod card;
mod rates;
mod sustained;
mod table;

pub use card::{Card, How, SourcedValue};
pub use rates::CardRates;
pub use sustained::SustainedRates;

use crate::machine::Machine;
use crate::suggest::{closest, did_you_mean};
use crate::units::Bytes;

/// No card of that name is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown GPU `{found}`{}", did_you_mean(.close))]
pub struct UnknownCard {
    pub found: String,
    pub close: Vec<&'static str>,
}

/// Products without memory of their own. What the catalogue says of them is the memory of the whole machine.
const WITH_HOST_MEMORY: [&str; 3] = ["NVIDIA GB10", "NVIDIA Thor", "Orin"];

/// Whether a GPU of that product name uses the host's memory: what it takes is missing there.
pub fn shares_host_memory(product: &str) -> bool {
    WITH_HOST_MEMORY.iter().any(|known| {
        product
            .strip_prefix(known)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    })
}

/// Every card, grouped by generation.
pub fn all() -> &'static [Card] {
    table::CARDS
}

/// The peak rates of a card; nothing where no value could be confirmed.
pub fn rates(card: &Card) -> Option<&'static CardRates> {
    rates::RATES.iter().find(|rates| rates.id == card.id)
}

/// The rates that somebody has measured on such a card; nothing where nobody has.
pub fn sustained(card: &Card) -> Option<&'static SustainedRates> {
    sustained::SUSTAINED
        .iter()
        .find(|rates| rates.id == card.id)
}

/// Finds a card by its id, an alias or its product name, in any spelling of blanks and case.
///
/// ```
/// assert_eq!(brimful::cards::find("T4").unwrap().name, "Tesla T4");
/// assert_eq!(brimful::cards::find("rtx 4090").unwrap().id, "rtx-4090");
/// assert_eq!(brimful::cards::find("rtx-4091").unwrap_err().close[0], "rtx-4090");
/// ```
pub fn find(name: &str) -> Result<&'static Card, UnknownCard> {
    let wanted = plain(name);
    all()
        .iter()
        .find(|card| short_names(card).any(|known| plain(known) == wanted))
        .or_else(|| by_product(name, None))
        .ok_or_else(|| unknown(name))
}

/// Finds the cards of one machine, such as `t4`, `2x a100-40gb` or `rtx 4090 + rtx 3060`.
///
/// ```
/// let names = |list| brimful::cards::find_all(list).unwrap().iter().map(|card| card.id).collect::<Vec<_>>();
/// assert_eq!(names("2x t4 + rtx 4090"), ["t4", "t4", "rtx-4090"]);
/// assert_eq!(names("t4x2"), ["t4", "t4"]);
/// ```
pub fn find_all(list: &str) -> Result<Vec<&'static Card>, UnknownCard> {
    let mut found = Vec::new();
    for part in list.split('+').take(MAX_CARDS) {
        let (card, count) = find_counted(part)?;
        found.extend(std::iter::repeat_n(card, count));
    }
    found.truncate(MAX_CARDS);
    Ok(found)
}

/// Finds a card and how many of it a machine has: `t4`, `2x t4` or `t4x2`.
pub fn find_counted(name: &str) -> Result<(&'static Card, usize), UnknownCard> {
    match find(name) {
        Ok(card) => Ok((card, 1)),
        Err(unknown) => counted(name).ok_or(unknown),
    }
}

/// The alternatives of a list with commas, such as `t4, 2x a100-40gb`.
///
/// ```
/// assert_eq!(brimful::cards::alternatives("t4, 2x a100-40gb,").unwrap(), ["t4", "2x a100-40gb"]);
/// assert!(brimful::cards::alternatives(" ,").is_err());
/// ```
pub fn alternatives(list: &str) -> Result<Vec<&str>, UnknownCard> {
    let parts: Vec<&str> = list
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect();
    if parts.is_empty() {
        return Err(unknown(list));
    }
    Ok(parts)
}

fn unknown(name: &str) -> UnknownCard {
    UnknownCard {
        found: name.chars().take(60).collect(),
        close: closest(name, all().iter().map(|card| card.id)),
    }
}

/// No machine holds more.
const MAX_CARDS: usize = 64;

/// `2x NAME` or `NAMEx2`.
fn counted(part: &str) -> Option<(&'static Card, usize)> {
    let lower = part.trim().to_lowercase();
    let (count, name) = lower
        .split_once('x')
        .filter(|(count, _)| count.trim().parse::<usize>().is_ok())
        .or_else(|| lower.rsplit_once('x').map(|(name, count)| (count, name)))?;
    let count: usize = count.trim().parse().ok()?;
    let card = find(name).ok()?;
    (1..=MAX_CARDS).contains(&count).then_some((card, count))
}

/// The card a driver means by a product name, or by another name of the same card.
///
/// Some names are shared by cards of different size, also by ones that are not in the catalogue. With a total, it is
/// the card of that size or none; without one, the smallest of that name, since a run that is promised more than the
/// card has dies.
///
/// ```
/// use brimful::{cards::by_product, units::Bytes};
/// let id = |mib| by_product("NVIDIA GeForce RTX 3050", Some(Bytes::from_mib(mib))).map(|card| card.id);
/// assert_eq!(id(8192), Some("rtx-3050-8gb"));
/// assert_eq!(id(6144), Some("rtx-3050-6gb"));
/// assert_eq!(id(4096), None);
/// ```
pub fn by_product(name: &str, total: Option<Bytes>) -> Option<&'static Card> {
    // Drivers before 470 leave the maker's name out.
    let wanted = plain(name);
    let named = all().iter().filter(|card| {
        plain(card.name) == wanted || short_names(card).any(|known| plain(known) == wanted)
    });
    match total {
        Some(total) => named
            .filter(|card| is_same_size(card.total.value, total))
            .min_by_key(|card| card.total.value.0.abs_diff(total.0)),
        None => named.min_by_key(|card| card.torch_visible.value),
    }
}

/// The same card shows 6.25 % less with ECC on; cards of one name that differ in size differ by far more.
fn is_same_size(a: Bytes, b: Bytes) -> bool {
    const TOLERANCE: f64 = 0.07;
    a.min(b).share_of(a.max(b)) >= 1.0 - TOLERANCE
}

/// The card of a machine that torch may see, and how many of its kind; nothing where there is none that is known.
pub fn of_machine(machine: &Machine) -> Option<(&'static Card, usize)> {
    let seen: Vec<&'static Card> = machine
        .gpus
        .devices
        .iter()
        .filter(|gpu| gpu.may_be_seen())
        .filter_map(|gpu| by_product(gpu.name.known()?, gpu.total.known().copied()))
        .filter(|card| card.compute_capability.is_some())
        .collect();
    let first = *seen.first()?;
    let same = seen.iter().filter(|card| card.id == first.id).count();
    Some((first, same))
}

/// The names that mean this card and no other.
fn short_names(card: &'static Card) -> impl Iterator<Item = &'static str> {
    std::iter::once(card.id).chain(card.aliases.iter().copied())
}

/// Letters and digits only, lower case, without the maker's name: `NVIDIA GeForce RTX 4090` is `rtx4090`.
fn plain(name: &str) -> String {
    let lower = name.to_lowercase();
    let mut rest = lower.trim();
    for maker in ["nvidia ", "geforce ", "amd ", "tesla "] {
        rest = rest.strip_prefix(maker).unwrap_or(rest);
    }
    rest.chars().filter(char::is_ascii_alphanumeric).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_figures_have_sources() {
        let mut seen = BTreeSet::new();
        for card in all() {
            let own: BTreeSet<String> = [card.id]
                .iter()
                .chain(card.aliases)
                .map(|n| plain(n))
                .collect();
            for name in own {
                assert!(seen.insert(name.clone()), "{name} names two cards");
            }
            for source in [
                card.multiprocessors.source,
                card.total.source,
                card.torch_visible.source,
            ] {
                assert!(
                    !source.is_empty(),
                    "{} has a figure without a source",
                    card.id
                );
            }
        }
        assert!(all().len() >= 100);
    }

    #[test]
    fn pytorch_never_sees_more_than_the_card_has() {
        for card in all() {
            // The driver's total is printed in whole MiB, cut off.
            assert!(
                card.torch_visible.value <= card.total.value.saturating_add(Bytes::from_mib(1)),
                "{}: {} of {}",
                card.id,
                card.torch_visible.value,
                card.total.value
            );
            let share = card.torch_visible.value.share_of(card.total.value);
            assert!(share > 0.9, "{} loses more than a tenth", card.id);
        }
    }

    #[test]
    fn cards_of_one_name_are_told_apart_by_size() {
        for card in all() {
            let found = by_product(card.name, Some(card.total.value)).unwrap();
            assert_eq!(found.id, card.id);
        }
    }

    fn check_product(name: &str, total_mib: u64, expected: Option<&str>) {
        let found = by_product(name, Some(Bytes::from_mib(total_mib)));
        assert_eq!(
            found.map(|card| card.id),
            expected,
            "{name}, {total_mib} MiB"
        );
    }

    #[test]
    fn a_card_of_another_size_is_no_match() {
        check_product("NVIDIA GeForce RTX 3080", 10240, Some("rtx-3080-10gb"));
        check_product("NVIDIA GeForce RTX 3080", 12288, Some("rtx-3080-12gb"));
        check_product("NVIDIA GeForce RTX 3080", 20480, None);
        check_product("NVIDIA GeForce RTX 2060", 12288, Some("rtx-2060-12gb"));
        check_product("NVIDIA GeForce RTX 4060 Ti", 8188, Some("rtx-4060-ti-8gb"));
        check_product("NVIDIA GeForce RTX 5060 Ti", 8151, None);
        check_product("NVIDIA GeForce RTX 4090", 49140, None);
        check_product("NVIDIA RTX PRO 5000 Blackwell", 73415, None);
        // ECC takes a sixteenth.
        check_product("NVIDIA GeForce RTX 4090", 23028, Some("rtx-4090"));
        check_product("Tesla P40", 24576, Some("p40"));
    }

    #[test]
    fn other_names_of_a_card_match() {
        check_product("AMD Instinct MI250X/MI250", 65520, Some("mi250x-gcd"));
        check_product("GeForce RTX 2080 Ti", 11264, Some("rtx-2080-ti"));
        check_product(
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            97887,
            Some("rtx-pro-6000-server"),
        );
        check_product(
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            97887,
            Some("rtx-pro-6000-max-q"),
        );
    }

    #[test]
    fn cards_that_share_memory_with_the_host_are_known_by_their_names() {
        for card in all() {
            let says_so = card.torch_visible.source.contains("shared with the host");
            assert_eq!(shares_host_memory(card.name), says_so, "{}", card.id);
        }
        assert!(shares_host_memory("Orin (nvgpu)"));
        assert!(!shares_host_memory("Original"));
    }

    #[test]
    fn without_a_size_the_smallest_of_a_name_is_meant() {
        for (name, expected) in [
            ("Orin", "jetson-orin-nano-8gb"),
            ("NVIDIA GeForce RTX 3050", "rtx-3050-6gb"),
        ] {
            assert_eq!(by_product(name, None).unwrap().id, expected);
        }
    }

    #[test]
    fn short_names_find_their_card() {
        for (name, expected) in [
            ("a4000", "rtx-a4000"),
            ("a5000", "rtx-a5000"),
            ("a6000", "rtx-a6000"),
            ("3070", "rtx-3070"),
            ("3080", "rtx-3080-10gb"),
            ("4060", "rtx-4060"),
            ("4070", "rtx-4070"),
            ("4080", "rtx-4080"),
            ("5060ti", "rtx-5060-ti-16gb"),
            ("5070", "rtx-5070"),
            ("5080", "rtx-5080"),
            ("dgx spark", "gb10"),
            ("A100-80GB MIG 3g.40gb", "a100-80gb-mig-3g.40gb"),
        ] {
            assert_eq!(find(name).unwrap().id, expected);
        }
    }

    /// The smallest figures that current drivers printed; more than these kills a run.
    #[test]
    fn no_more_is_promised_than_current_drivers_show() {
        for (id, printed) in [
            ("l4", "22.03 GiB"),
            ("a10", "22.06 GiB"),
            ("a100-40gb", "39.49 GiB"),
            ("h100-80gb", "79.18 GiB"),
            ("h200", "139.72 GiB"),
            ("p40", "22.38 GiB"),
            ("rtx-2080-ti", "10.57 GiB"),
            ("rtx-3090", "23.56 GiB"),
            ("rtx-4090", "23.52 GiB"),
            ("rtx-5090", "31.35 GiB"),
            ("mi300x", "191.69 GiB"),
        ] {
            let visible = find(id).unwrap().torch_visible.value;
            assert_eq!(visible.to_string(), printed, "{id}");
        }
    }

    /// Total and reserved MiB as `nvidia-smi -q -x` printed them: NVIDIA/k8s-test-infra at 3b2b865d,
    /// `tests/e2e/go/assertions/nvidiasmi/testdata/hardware`.
    #[test]
    fn pytorch_sees_what_the_driver_does_not_reserve() {
        for (id, total, reserved) in [
            ("t4", 15_360, 448),
            ("a100-40gb", 40_960, 518),
            ("h100-80gb", 81_559, 480),
            ("l40s", 46_068, 609),
            ("b200", 183_359, 728),
            ("gb200", 189_471, 742),
            ("gb300", 284_208, 947),
        ] {
            let card = find(id).unwrap();
            assert_eq!(card.total.value, Bytes::from_mib(total), "{id}");
            let left = Bytes::from_mib(total - reserved);
            let share = card.torch_visible.value.share_of(left);
            assert!((share - 1.0).abs() <= 0.003, "{id}: {share}");
        }
    }

    #[test]
    fn ecc_leaves_less() {
        let card = find("rtx-4090").unwrap();
        let (whole, how) = card.torch_visible_of(card.total.value);
        assert_eq!((whole, how), (card.torch_visible.value, How::Measured));
        let (with_ecc, how) = card.torch_visible_of(Bytes::from_mib(23028));
        assert!(with_ecc < Bytes::from_mib(23028));
        assert_eq!(how, How::Estimated);
        // Seen on an RTX A5000 with ECC on.
        let (with_ecc, _) = find("a5000")
            .unwrap()
            .torch_visible_of(Bytes::from_mib(23028));
        assert!(with_ecc <= Bytes::from_mib(22721));
    }
}
