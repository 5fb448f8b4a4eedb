//! Where a rehearsed script connected to, and what it could not: one JSON line for each, from a preloaded library and from
//! the keeper.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;

use serde::Deserialize;

/// Name of the file in the directory of results.
pub(crate) const FILE_NAME: &str = "connections";
/// The library bounds what one process writes; this bounds all of them.
const MAX_BYTES: u64 = 4 << 20;
const MAX_CONNECTIONS: usize = 100;

/// A host that the script connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Its name, or its address where no name was looked up.
    pub host: String,
    pub port: u16,
    /// Processes that connected to it.
    pub count: u32,
}

/// A local socket that the script connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Its path, or `@` and its name where it has none.
    pub path: String,
    /// Whether the connection was refused.
    pub is_refused: bool,
    /// Processes that connected to it.
    pub count: u32,
}

/// What the script talked to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Other hosts, and services on this machine.
    pub hosts: Vec<Connection>,
    pub sockets: Vec<Socket>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Host {
        address: String,
        port: u16,
        host: Option<String>,
    },
    Socket {
        socket: String,
    },
    Refused {
        refused: String,
    },
    ListensAt {
        listens_at: u16,
    },
    ListensOn {
        listens_on: String,
    },
}

/// What the processes of a rehearsal wrote.
pub(crate) fn read(results: &Path) -> Connections {
    let bytes = brimful_private::read(&results.join(FILE_NAME), MAX_BYTES).unwrap_or_default();
    connections(&String::from_utf8_lossy(&bytes))
}

fn connections(text: &str) -> Connections {
    let lines: Vec<Line> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    // What the rehearsal itself listens on is no service.
    let mut own_ports = HashSet::new();
    let mut own_sockets = HashSet::new();
    for line in &lines {
        match line {
            Line::ListensAt { listens_at } => {
                own_ports.insert(*listens_at);
            }
            Line::ListensOn { listens_on } => {
                own_sockets.insert(listens_on.clone());
            }
            _ => {}
        }
    }
    let mut found = Connections::default();
    for line in lines {
        match line {
            Line::Host {
                address,
                port,
                host,
            } => {
                if !(is_this_machine(&address) && own_ports.contains(&port)) {
                    found.add_host(host.unwrap_or(address), port);
                }
            }
            Line::Socket { socket } if !own_sockets.contains(&socket) => {
                found.add_socket(socket, false);
            }
            Line::Refused { refused } if !own_sockets.contains(&refused) => {
                found.add_socket(refused, true);
            }
            Line::Socket { .. }
            | Line::Refused { .. }
            | Line::ListensAt { .. }
            | Line::ListensOn { .. } => {}
        }
    }
    found
}

fn is_this_machine(address: &str) -> bool {
    let address = address.parse::<IpAddr>();
    address.is_ok_and(|address| address.is_loopback() || address.is_unspecified())
}

impl Connections {
    fn add_host(&mut self, host: String, port: u16) {
        self.merge_host(Connection {
            host,
            port,
            count: 1,
        });
    }

    fn add_socket(&mut self, path: String, is_refused: bool) {
        self.merge_socket(Socket {
            path,
            is_refused,
            count: 1,
        });
    }

    fn merge_host(&mut self, new: Connection) {
        let is_same = |known: &&mut Connection| known.host == new.host && known.port == new.port;
        if let Some(known) = self.hosts.iter_mut().find(is_same) {
            known.count = known.count.saturating_add(new.count);
        } else if self.hosts.len() < MAX_CONNECTIONS {
            self.hosts.push(new);
        }
    }

    fn merge_socket(&mut self, new: Socket) {
        let is_same =
            |known: &&mut Socket| known.path == new.path && known.is_refused == new.is_refused;
        if let Some(known) = self.sockets.iter_mut().find(is_same) {
            known.count = known.count.saturating_add(new.count);
        } else if self.sockets.len() < MAX_CONNECTIONS {
            self.sockets.push(new);
        }
    }

    /// Those of this rehearsal and of another one.
    #[must_use]
    pub(crate) fn and(mut self, other: Connections) -> Connections {
        other
            .hosts
            .into_iter()
            .for_each(|host| self.merge_host(host));
        other
            .sockets
            .into_iter()
            .for_each(|socket| self.merge_socket(socket));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_counted_by_name_and_nonsense_is_left_out() {
        let text = r#"
            {"address":"1.2.3.4","port":443,"host":"hub.example"}
            {"address":"1.2.3.5","port":443,"host":"hub.example"}
            {"address":"10.0.0.1","port":80}
            {"address":
        "#;
        let found = connections(text);
        let shown: Vec<(&str, u16, u32)> = found
            .hosts
            .iter()
            .map(|it| (it.host.as_str(), it.port, it.count))
            .collect();
        assert_eq!(shown, [("hub.example", 443, 2), ("10.0.0.1", 80, 1)]);
    }

    #[test]
    fn what_the_script_listens_on_itself_is_no_service() {
        let text = r#"
            {"address":"127.0.0.1","port":7601}
            {"address":"127.0.0.1","port":29500}
            {"listens_at":29500}
            {"address":"192.0.2.1","port":29500}
            {"listens_on":"/tmp/pymp/listener"}
            {"socket":"/tmp/pymp/listener"}
            {"socket":"/run/db.sock"}
            {"refused":"/run/docker.sock"}
        "#;
        let found = connections(text);
        let hosts: Vec<(&str, u16)> = found
            .hosts
            .iter()
            .map(|it| (it.host.as_str(), it.port))
            .collect();
        assert_eq!(hosts, [("127.0.0.1", 7601), ("192.0.2.1", 29500)]);
        let sockets: Vec<(&str, bool)> = found
            .sockets
            .iter()
            .map(|it| (it.path.as_str(), it.is_refused))
            .collect();
        assert_eq!(
            sockets,
            [("/run/db.sock", false), ("/run/docker.sock", true)]
        );
    }
}
