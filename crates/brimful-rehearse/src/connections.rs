//! Where a rehearsed script connected to, beyond this machine: one JSON line for each, from a preloaded library.

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

#[derive(Deserialize)]
struct Line {
    address: String,
    port: u16,
    host: Option<String>,
}

/// What the processes of a rehearsal wrote.
pub(crate) fn read(results: &Path) -> Vec<Connection> {
    let bytes = brimful_private::read(&results.join(FILE_NAME), MAX_BYTES).unwrap_or_default();
    connections(&String::from_utf8_lossy(&bytes))
}

fn connections(text: &str) -> Vec<Connection> {
    let mut found: Vec<Connection> = Vec::new();
    for line in text.lines() {
        let Ok(line) = serde_json::from_str::<Line>(line) else {
            continue;
        };
        let host = line.host.unwrap_or(line.address);
        let is_same = |known: &Connection| known.host == host && known.port == line.port;
        if let Some(at) = found.iter().position(is_same) {
            found[at].count += 1;
        } else if found.len() < MAX_CONNECTIONS {
            found.push(Connection {
                host,
                port: line.port,
                count: 1,
            });
        }
    }
    found
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
            .iter()
            .map(|it| (it.host.as_str(), it.port, it.count))
            .collect();
        assert_eq!(shown, [("hub.example", 443, 2), ("10.0.0.1", 80, 1)]);
    }
}
