//! Destinations are listed once, and what the program itself listens on.

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
for family, address in [(socket.AF_UNIX, "own.sock"), (socket.AF_UNIX, "\0own"), (socket.AF_INET, ("127.0.0.1", 0))]:
    with socket.socket(family) as listener, socket.socket(family) as connection:
        listener.bind(address)
        listener.listen()
        connection.connect(listener.getsockname())
        if family == socket.AF_INET:
            print(listener.getsockname()[1])
"#;

#[test]
fn every_destination_is_listed_once() {
    let directory = tempfile::TempDir::new().unwrap();
    let list = directory.path().join("connections");
    let output = std::process::Command::new("python3")
        .args(["-c", PROGRAM])
        .current_dir(directory.path())
        .env("LD_PRELOAD", library())
        .env("BRIMFUL_CONNECTIONS", &list)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let port: u16 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .unwrap();
    let expected = [
        r#"{"address":"192.0.2.1","port":443}"#.to_owned(),
        r#"{"address":"192.0.2.2","port":80}"#.to_owned(),
        r#"{"address":"127.0.0.1","port":9}"#.to_owned(),
        r#"{"listens_on":"own.sock"}"#.to_owned(),
        r#"{"socket":"own.sock"}"#.to_owned(),
        r#"{"listens_on":"@own"}"#.to_owned(),
        r#"{"socket":"@own"}"#.to_owned(),
        format!(r#"{{"listens_at":{port}}}"#),
        format!(r#"{{"address":"127.0.0.1","port":{port}}}"#),
    ];
    assert_eq!(
        std::fs::read_to_string(list)
            .unwrap()
            .lines()
            .collect::<Vec<_>>(),
        expected
    );
}
