//! What a script did or wanted to do beyond its own process while it was rehearsed.

use brimful_isolate::{Containment, GpuHidden, Isolation, Network};

use crate::connections::Connections;

/// What became of a rehearsed script's writes, uploads and connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideEffects {
    /// How the user's files were protected: the weakest of all rehearsals.
    pub isolation: Isolation,
    /// How the GPUs of this machine were hidden: the weakest of all rehearsals.
    pub gpu_hidden: GpuHidden,
    /// How what other programs have was kept from it: the weakest of all rehearsals.
    pub containment: Containment,
    /// What network it had.
    pub network: Network,
    /// What would have reached a service and was not done, each once.
    pub suppressed: Vec<String>,
    /// Hosts, and services on this machine, that the script connected to.
    pub connections: Connections,
}

impl SideEffects {
    /// Those of this rehearsal and of another one.
    #[must_use]
    pub fn and(mut self, other: SideEffects) -> SideEffects {
        self.isolation = self.isolation.max(other.isolation);
        self.gpu_hidden = self.gpu_hidden.max(other.gpu_hidden);
        for text in other.suppressed {
            if !self.suppressed.contains(&text) {
                self.suppressed.push(text);
            }
        }
        self.containment = self.containment.and(other.containment);
        if other.network == Network::Full {
            self.network = Network::Full;
        }
        self.connections = self.connections.and(other.connections);
        self
    }
}

#[cfg(test)]
mod tests {
    use brimful_isolate::Contained;

    use super::*;
    use crate::connections::Connection;

    fn connections(hosts: &[(&str, u32)]) -> Connections {
        Connections {
            hosts: hosts
                .iter()
                .map(|(host, count)| Connection {
                    host: (*host).into(),
                    port: 443,
                    count: *count,
                })
                .collect(),
            sockets: Vec::new(),
        }
    }

    #[test]
    fn two_rehearsals_are_as_weak_as_the_weaker_and_name_everything_once() {
        let own = Containment {
            shared_memory: Contained::Namespace,
            ipc: Contained::Namespace,
            processes: Contained::Namespace,
        };
        let first = SideEffects {
            isolation: Isolation::Redirect,
            gpu_hidden: GpuHidden::Devices,
            containment: Containment {
                processes: Contained::SignalsDenied,
                ..own
            },
            network: Network::None,
            suppressed: vec!["wandb".into()],
            connections: connections(&[("a.example", 1)]),
        };
        let second = SideEffects {
            isolation: Isolation::Overlay,
            gpu_hidden: GpuHidden::Landlock,
            containment: Containment {
                ipc: Contained::Denied,
                ..own
            },
            network: Network::Full,
            suppressed: vec!["wandb".into(), "mlflow".into()],
            connections: connections(&[("a.example", 2), ("b.example", 1)]),
        };
        let both = first.and(second);
        assert_eq!(both.isolation, Isolation::Redirect);
        assert_eq!(both.gpu_hidden, GpuHidden::Landlock);
        assert_eq!(both.containment.shared_memory, Contained::Namespace);
        assert_eq!(both.containment.ipc, Contained::Denied);
        assert_eq!(both.containment.processes, Contained::SignalsDenied);
        assert_eq!(both.network, Network::Full);
        assert_eq!(both.suppressed, ["wandb", "mlflow"]);
        assert_eq!(
            both.connections,
            connections(&[("a.example", 3), ("b.example", 1)])
        );
    }
}
