//! Destinations beyond this machine are listed once.

use crate::world::library;

/// Addresses of documentation; a datagram socket that is connected sends nothing.
const PROGRAM: &str = r#"
import socket
for address, port in [("192.0.2.1", 443), ("192.0.2.1", 443), ("192.0.2.2", 80), ("192.0.2.3", 53), ("127.0.0.1", 9)]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        try:
            connection.connect((address, port))
        except OSError:
            pass
with socket.socket(socket.AF_UNIX) as connection:
    try:
        connection.connect("/nowhere")
    except FileNotFoundError:
        pass
"#;

#[test]
fn every_destination_is_listed_once() {
    let directory = tempfile::TempDir::new().unwrap();
    let list = directory.path().join("connections");
    let output = std::process::Command::new("python3")
        .args(["-c", PROGRAM])
        .env("LD_PRELOAD", library())
        .env("BRIMFUL_CONNECTIONS", &list)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        std::fs::read_to_string(list).unwrap(),
        "{\"address\":\"192.0.2.1\",\"port\":443}\n{\"address\":\"192.0.2.2\",\"port\":80}\n"
    );
}
