//! What a script did or wanted to do beyond its own process while it was rehearsed.

use brimful_isolate::{GpuHidden, Isolation};

use crate::connections::Connection;

/// What became of a rehearsed script's writes, uploads and connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideEffects {
    /// How the user's files were protected: the weakest of all rehearsals.
    pub isolation: Isolation,
    /// How the GPUs of this machine were hidden: the weakest of all rehearsals.
    pub gpu_hidden: GpuHidden,
    /// What would have reached a service and was not done, each once.
    pub suppressed: Vec<String>,
    /// Hosts beyond this machine that the script connected to.
    pub connections: Vec<Connection>,
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
        for connection in other.connections {
            let known = self
                .connections
                .iter_mut()
                .find(|known| known.host == connection.host && known.port == connection.port);
            match known {
                Some(known) => known.count = known.count.saturating_add(connection.count),
                None => self.connections.push(connection),
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(host: &str, count: u32) -> Connection {
        Connection {
            host: host.into(),
            port: 443,
            count,
        }
    }

    #[test]
    fn two_rehearsals_are_as_weak_as_the_weaker_and_name_everything_once() {
        let first = SideEffects {
            isolation: Isolation::Redirect,
            gpu_hidden: GpuHidden::Devices,
            suppressed: vec!["wandb".into()],
            connections: vec![connection("a.example", 1)],
        };
        let second = SideEffects {
            isolation: Isolation::Overlay,
            gpu_hidden: GpuHidden::Landlock,
            suppressed: vec!["wandb".into(), "mlflow".into()],
            connections: vec![connection("a.example", 2), connection("b.example", 1)],
        };
        let both = first.and(second);
        assert_eq!(both.isolation, Isolation::Redirect);
        assert_eq!(both.gpu_hidden, GpuHidden::Landlock);
        assert_eq!(both.suppressed, ["wandb", "mlflow"]);
        assert_eq!(
            both.connections,
            [connection("a.example", 3), connection("b.example", 1)]
        );
    }
}
