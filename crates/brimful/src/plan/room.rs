//! The room that a machine leaves.

use crate::cards::{self, Card};
use crate::machine::Machine;
use crate::plan::PlanLimits;

impl PlanLimits {
    /// What a machine leaves to a job, and the card it trains on with how many there are; no card for a job on
    /// processors, and where the machine has none that is known.
    pub fn for_job(
        machine: &Machine,
        on_processors: bool,
    ) -> (PlanLimits, Option<(&'static Card, usize)>) {
        let mut room = PlanLimits::of(machine);
        let card = cards::of_machine(machine).filter(|_| !on_processors);
        if card.is_none() {
            room.gpus.clear();
        }
        (room, card)
    }

    /// What a machine leaves to a job that starts now.
    ///
    /// A limit that cannot be read does not bind: it is absent, never zero.
    pub fn of(machine: &Machine) -> PlanLimits {
        let brim = machine.host.brim();
        let brim = brim.known();
        let host = brim.map(|brim| *brim.headroom.known().unwrap_or(&brim.limit));
        let shm = &machine.shm;
        let shm = shm.free.known().or(shm.total.known()).copied();
        let gpus = machine
            .gpus
            .devices
            .iter()
            .filter(|gpu| gpu.may_be_seen())
            .filter_map(|gpu| {
                let total = gpu.torch_memory.known().map(|memory| memory.bytes);
                Some((gpu.label().to_owned(), gpu.free().or(total)?))
            })
            .collect();
        let cpus = machine.cpus.usable();
        PlanLimits {
            host,
            shm,
            gpus,
            cpus: cpus.known().map_or(1.0, |(count, _)| *count),
            ranks: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles;
    use crate::units::Bytes;

    #[test]
    fn the_room_of_a_recorded_machine() {
        let machine = profiles::find("colab-t4").unwrap().machine();
        let room = PlanLimits::of(&machine);
        assert!(room.host.is_some_and(|host| host <= Bytes::from_gib(13)));
        assert_eq!(room.gpus.len(), 1);
        assert!((room.cpus - 2.0).abs() < 1e-9);
    }
}
