//! The catalogue of findings, one file each.
//!
//! A finding is a claim about one machine, with the evidence it rests on and what to do about it.
//! To add one, copy the nearest file, put it into [`CATALOGUE`], and run `cargo xtask generate`.

mod address_space_limited;
mod alloc_conf_ignored;
mod alloc_conf_unknown_option;
mod bf16_emulated;
mod caching_allocator_off;
mod container_limit_below_host_memory;
mod device_order_differs;
mod driver_too_old_for_torch;
mod expandable_segments_with_max_split_size;
mod few_cpus_for_workers;
mod fewer_cpus_than_shown;
mod finding;
mod first_in_line_for_oom_killer;
mod gpu_already_in_use;
mod gpu_hidden_from_torch;
mod gpu_split_into_instances;
mod group_kill_takes_supervisor;
mod headroom_low;
mod kernel_freezes_instead_of_killing;
mod limits_above_not_visible;
mod low_max_map_count;
mod low_open_files_limit;
mod memory_high_throttles;
mod memory_pressure_now;
mod no_isolation_for_rehearsals;
mod no_kernels_for_card;
mod shm_larger_than_headroom;
mod shm_too_small_for_workers;
mod slurm_request_not_enforced;
mod strict_overcommit;
mod torch_without_gpu_support;
mod userspace_killer_running;
mod visible_devices_cut_short;
mod workers_copy_the_dataset;
mod wsl_memory_is_a_share;

#[cfg(test)]
mod testing;

pub use finding::{Finding, Rule, Severity};

use crate::machine::Machine;
use finding::Diagnosis;

/// Every rule, in the order readers should meet them: host, shared memory, processors, GPU, software.
pub const CATALOGUE: &[Rule] = &[
    headroom_low::RULE,
    container_limit_below_host_memory::RULE,
    limits_above_not_visible::RULE,
    memory_high_throttles::RULE,
    group_kill_takes_supervisor::RULE,
    kernel_freezes_instead_of_killing::RULE,
    userspace_killer_running::RULE,
    first_in_line_for_oom_killer::RULE,
    memory_pressure_now::RULE,
    strict_overcommit::RULE,
    slurm_request_not_enforced::RULE,
    wsl_memory_is_a_share::RULE,
    shm_too_small_for_workers::RULE,
    shm_larger_than_headroom::RULE,
    address_space_limited::RULE,
    low_open_files_limit::RULE,
    low_max_map_count::RULE,
    fewer_cpus_than_shown::RULE,
    few_cpus_for_workers::RULE,
    gpu_already_in_use::RULE,
    gpu_hidden_from_torch::RULE,
    visible_devices_cut_short::RULE,
    gpu_split_into_instances::RULE,
    device_order_differs::RULE,
    torch_without_gpu_support::RULE,
    driver_too_old_for_torch::RULE,
    no_kernels_for_card::RULE,
    bf16_emulated::RULE,
    alloc_conf_ignored::RULE,
    alloc_conf_unknown_option::RULE,
    expandable_segments_with_max_split_size::RULE,
    caching_allocator_off::RULE,
    workers_copy_the_dataset::RULE,
    no_isolation_for_rehearsals::RULE,
];

/// Everything that will bite on this machine, worst first.
pub fn of(machine: &Machine) -> Vec<Finding> {
    let mut findings: Vec<Finding> = CATALOGUE
        .iter()
        .filter_map(|rule| {
            let told = (rule.check)(machine)?;
            Some(Finding {
                id: rule.id,
                severity: rule.severity,
                summary: told.summary,
                evidence: told.evidence,
                remedies: told.remedies,
            })
        })
        .collect();
    findings.sort_by_key(|finding| finding.severity);
    findings
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_healthy_machine_has_nothing_to_report() {
        assert_eq!(of(&testing::healthy()), []);
    }

    #[test]
    fn ids_are_unique_words() {
        let ids: BTreeSet<&str> = CATALOGUE.iter().map(|rule| rule.id).collect();
        assert_eq!(ids.len(), CATALOGUE.len());
        for id in ids {
            assert!(
                id.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            );
        }
    }
}
