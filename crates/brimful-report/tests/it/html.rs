//! The card for notebooks.

use brimful_probe::probe;
use brimful_report::html;
use brimful_testkit::{FakeMachine, machine_names};

#[test]
fn every_machine_has_a_card_without_script_or_outside_resource() {
    for name in machine_names() {
        let card = html::probe(&probe(&FakeMachine::load(&name).surroundings())).unwrap();
        for forbidden in [
            "<script", "<svg", "http://", "https://", "onclick", "@import", "url(",
        ] {
            assert!(!card.contains(forbidden), "{name}: {forbidden}");
        }
        assert_eq!(
            card.matches("<div").count(),
            card.matches("</div>").count(),
            "{name}"
        );
    }
}

#[test]
fn what_a_machine_says_cannot_become_markup() {
    let machine = FakeMachine::load("docker-v2");
    machine.write("/proc/self/cgroup", "0::/\"><img src=x onerror=alert(1)>\n");
    machine.write("/etc/os-release", "PRETTY_NAME=\"<b>bold</b>\"\n");
    let card = html::probe(&probe(&machine.surroundings())).unwrap();
    assert!(
        !card.contains("<img src"),
        "pictures of ours begin with their text"
    );
    assert!(!card.contains("onerror=alert(1)>"));
    assert!(!card.contains("<b>bold"));
}
