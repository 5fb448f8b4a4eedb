//! The section about the user's files and services, on the pages of `predict` and `plan`.

use crate::json::{Containment, SideEffects, SocketConnection};
use crate::text::page::Page;

/// Adds the section: what the script's writes came to, how other programs and GPUs were kept from it, what was not sent,
/// and where it connected to.
pub(crate) fn section(out: &mut String, effects: &SideEffects, page: &Page) {
    page.section(out, "Your files and services", &lines(effects, page));
}

fn lines(effects: &SideEffects, page: &Page) -> String {
    let files = match effects.isolation.as_str() {
        "off" => "not protected: what the script wrote reached your files (--allow-writes)",
        "redirect" => {
            "unchanged: writes were redirected to a private directory (isolation: redirect)"
        }
        _ => "unchanged: writes went to a private overlay (isolation: overlay)",
    };
    let gpu = match effects.gpu_hidden.as_str() {
        "devices" => {
            "not used: the script had no access to this machine's GPU (gpu_hidden: devices)"
        }
        "landlock" => {
            "not used: Landlock denied the script this machine's GPU (gpu_hidden: landlock)"
        }
        _ => "not used: this machine has no GPU driver (gpu_hidden: no_driver)",
    };
    let mut out = page.hang("  files       ", 14, files);
    out.push_str(&page.hang("  programs    ", 14, programs(&effects.containment)));
    out.push_str(&page.hang("  GPU         ", 14, gpu));
    if !effects.suppressed.is_empty() {
        let text = effects.suppressed.join(", ");
        out.push_str(&page.hang("  not done    ", 14, &text));
    }
    let hosts = effects
        .connections
        .iter()
        .map(|connection| format!("{}:{}", connection.host, connection.port));
    let (refused, reached): (Vec<&SocketConnection>, Vec<&SocketConnection>) =
        effects.sockets.iter().partition(|socket| socket.refused);
    let reached = reached.into_iter().map(|socket| socket.path.clone());
    let connected: Vec<String> = hosts.chain(reached).collect();
    if !connected.is_empty() {
        out.push_str(&page.hang("  connected   ", 14, &connected.join(", ")));
    }
    if !refused.is_empty() {
        let paths: Vec<&str> = refused.iter().map(|socket| socket.path.as_str()).collect();
        let why = if effects.containment.network == "denied" {
            "--network none"
        } else {
            "a rehearsal does not reach the sockets of local services"
        };
        let text = format!("connections to {} ({why})", paths.join(", "));
        out.push_str(&page.hang("  refused     ", 14, &text));
    }
    out
}

fn programs(containment: &Containment) -> &'static str {
    match containment.processes.as_str() {
        "open" if containment.shared_memory == "open" => {
            "not protected: the script could reach shared memory and processes (--allow-writes)"
        }
        "open" => {
            "the script could signal your other processes: this kernel offers nothing against it"
        }
        "signals_denied" => {
            "the script could change priorities and limits of your other processes: this kernel \
             offers nothing against it"
        }
        _ => "not reached: shared memory, queues and other processes",
    }
}
