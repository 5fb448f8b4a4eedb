//! What to request from a scheduler, so that a plan fits.

use crate::cards::Card;
use crate::job::knobs;
use crate::plan::{Plan, Shape};
use crate::units::{Bytes, rounded};

/// Beside the training in the same limit: a shell, brimful, and what the kernel keeps for them.
const BESIDE: Bytes = Bytes::from_mib(256);
/// Requests of memory are multiples of this.
const STEP: Bytes = Bytes::from_mib(256);
/// What NVIDIA's documentation of NCCL gives to containers with several ranks.
const SHM_OF_RANKS: Bytes = Bytes::from_gib(1);
/// What a container has without a request.
const SHM_OF_CONTAINERS: Bytes = Bytes::from_mib(64);

/// The resources that a plan needs on each of its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRequest {
    /// Nodes that train together.
    pub nodes: u64,
    /// Host memory, including /dev/shm.
    pub memory: Bytes,
    /// The safe value of the plan, without what is beside the training.
    pub memory_safe: Bytes,
    /// The size of /dev/shm; `None` if 64 MiB are enough.
    pub shm: Option<Bytes>,
    pub shm_safe: Bytes,
    /// `None` for a job on the CPU.
    pub gpu: Option<RequestedGpu>,
    pub cpus: u64,
    /// Processes that train on a node, each with workers of its own.
    pub ranks: u64,
    pub workers: u64,
}

/// The GPUs of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedGpu {
    /// As in the catalogue of cards.
    pub id: &'static str,
    pub name: &'static str,
    pub count: u64,
    /// Bytes of the one with the highest use; `None` if they are not known.
    pub safe: Option<Bytes>,
}

impl ResourceRequest {
    /// What a plan needs, for the cards and the number of CPUs that it was made for.
    pub fn of(
        plan: &Plan,
        shapes: &[Shape],
        card: Option<(&'static Card, usize)>,
        cpus: f64,
    ) -> ResourceRequest {
        let host = &plan.footprint.host;
        // A rehearsal that failed has counted nothing.
        let shape = shapes
            .iter()
            .filter(|shape| shape.failed.is_none())
            .max_by_key(|shape| shape.rehearsed_at_unix_ms);
        let ranks = shape.map_or(1, |shape| shape.host.ranks.max(1));
        let rehearsed_workers = shape.map_or(0, |shape| shape.host.workers);
        let workers = plan
            .settings
            .count(knobs::WORKERS)
            .unwrap_or(rehearsed_workers);
        // With the memory of cards that have none of their own.
        let of_brim = plan.brims.iter().find(|brim| brim.name == "host");
        let memory_safe = of_brim.map_or(host.safe, |brim| brim.safe.max(host.safe));
        let shm = if ranks > 1 && card.is_some() {
            host.shm_safe.max(SHM_OF_RANKS)
        } else {
            host.shm_safe
        };
        let processes = ranks.saturating_mul(workers.saturating_add(1));
        let cpus = match card {
            Some(_) => processes,
            // The training itself uses all of them.
            None => processes.max(rounded(cpus.ceil())),
        };
        ResourceRequest {
            nodes: 1,
            memory: stepped(Bytes(memory_safe.get().saturating_add(BESIDE.get()))),
            memory_safe,
            shm: (shm > SHM_OF_CONTAINERS).then(|| stepped(shm)),
            shm_safe: host.shm_safe,
            gpu: card.map(|(card, count)| RequestedGpu {
                id: card.id,
                name: card.name,
                count: gpus_of(count as u64, ranks),
                safe: plan.footprint.gpu.as_ref().map(|gpu| gpu.safe),
            }),
            cpus,
            ranks,
            workers,
        }
    }
}

impl ResourceRequest {
    /// The same on each of several nodes.
    #[must_use]
    pub fn on_nodes(self, nodes: u64) -> ResourceRequest {
        ResourceRequest {
            nodes: nodes.max(1),
            ..self
        }
    }
}

/// One for each rank; all that were planned for where one process may use several.
fn gpus_of(planned: u64, ranks: u64) -> u64 {
    if ranks > 1 {
        planned.min(ranks)
    } else {
        planned
    }
}

fn stepped(bytes: Bytes) -> Bytes {
    Bytes(bytes.get().div_ceil(STEP.get()).saturating_mul(STEP.get()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards;
    use crate::job::{Settings, Value};
    use crate::plan::{GpuNeed, Need, PlanBrim};
    use crate::predict::host::{HostFacts, HostNeed};

    fn plan(safe: Bytes, shm: Bytes, workers: i64) -> Plan {
        let mut settings = Settings::default();
        settings
            .0
            .insert(knobs::WORKERS.to_owned(), Value::Whole(workers));
        Plan {
            settings,
            footprint: Need {
                host: HostNeed {
                    safe,
                    shm_safe: shm,
                    ..HostNeed::default()
                },
                gpu: Some(GpuNeed {
                    safe: Bytes::from_gib(20),
                    ..GpuNeed::default()
                }),
            },
            ..Plan::default()
        }
    }

    fn shapes(ranks: u64) -> Vec<Shape> {
        let host = HostFacts {
            ranks,
            ..HostFacts::default()
        };
        vec![Shape {
            host,
            ..Shape::default()
        }]
    }

    #[test]
    fn a_request_has_the_safe_values_and_room_for_what_is_beside_the_training() {
        let card = cards::find("a100-40gb").unwrap();
        let plan = plan(Bytes::from_mib(10_000), Bytes::from_mib(1500), 4);
        let found = ResourceRequest::of(&plan, &shapes(2), Some((card, 2)), 8.0);
        assert_eq!(found.memory, Bytes::from_mib(10_496));
        assert_eq!(found.memory_safe, Bytes::from_mib(10_000));
        assert_eq!(found.shm, Some(Bytes::from_mib(1536)));
        assert_eq!(found.cpus, 10);
        let gpu = found.gpu.unwrap();
        assert_eq!((gpu.id, gpu.count), ("a100-40gb", 2));
        assert_eq!(gpu.safe, Some(Bytes::from_gib(20)));
    }

    #[test]
    fn one_process_may_use_all_gpus_and_small_batches_need_no_larger_shm() {
        let card = cards::find("t4").unwrap();
        let plan = plan(Bytes::from_gib(4), Bytes::from_mib(30), 0);
        let found = ResourceRequest::of(&plan, &shapes(1), Some((card, 2)), 8.0);
        assert_eq!(found.gpu.unwrap().count, 2);
        assert_eq!((found.shm, found.cpus), (None, 1));
    }

    #[test]
    fn several_ranks_on_gpus_get_shared_memory_and_a_job_on_the_cpu_all_cpus() {
        let card = cards::find("t4").unwrap();
        let plan = plan(Bytes::from_gib(4), Bytes(0), 1);
        let on_gpus = ResourceRequest::of(&plan, &shapes(2), Some((card, 2)), 8.0);
        assert_eq!(on_gpus.shm, Some(Bytes::from_gib(1)));
        let on_cpu = ResourceRequest::of(&plan, &[], None, 7.5);
        assert_eq!((on_cpu.shm, on_cpu.gpu), (None, None));
        assert_eq!((on_cpu.ranks, on_cpu.cpus), (1, 8));
    }

    #[test]
    fn a_rehearsal_that_failed_counts_for_nothing() {
        let card = cards::find("t4").unwrap();
        let plan = plan(Bytes::from_gib(4), Bytes(0), 1);
        let mut shapes = shapes(2);
        shapes.push(Shape {
            failed: Some("out of memory".to_owned()),
            rehearsed_at_unix_ms: 1,
            ..Shape::default()
        });
        let found = ResourceRequest::of(&plan, &shapes, Some((card, 2)), 8.0);
        assert_eq!((found.ranks, found.cpus), (2, 4));
    }

    #[test]
    fn a_gpu_without_memory_of_its_own_takes_the_hosts() {
        let mut plan = plan(Bytes::from_gib(4), Bytes(0), 0);
        plan.brims.push(PlanBrim {
            name: "host".to_owned(),
            safe: Bytes::from_gib(24),
            ..PlanBrim::default()
        });
        let found = ResourceRequest::of(&plan, &shapes(1), None, 1.0);
        assert_eq!(found.memory, Bytes::from_mib(24 * 1024 + 256));
    }
}
