//! The section about the user's files and services, on the pages of `predict` and `plan`.

use crate::json::SideEffects;
use crate::text::page::Page;

/// Adds the section: what the script's writes came to, how GPUs were hidden from it, what was not sent, and where it
/// connected to.
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
    out.push_str(&page.hang("  GPU         ", 14, gpu));
    if !effects.suppressed.is_empty() {
        let text = effects.suppressed.join(", ");
        out.push_str(&page.hang("  not done    ", 14, &text));
    }
    if !effects.connections.is_empty() {
        let hosts: Vec<String> = effects
            .connections
            .iter()
            .map(|connection| format!("{}:{}", connection.host, connection.port))
            .collect();
        out.push_str(&page.hang("  connected   ", 14, &hosts.join(", ")));
    }
    out
}
