//! The page in the terminal, whole, at 80 columns.

use brimful_probe::probe;
use brimful_report::text::{self, Page};
use brimful_testkit::{FakeMachine, machine_names};

const COLOR: Page = Page {
    width: 80,
    color: true,
    unicode: true,
};

fn page(name: &str, page: &Page) -> String {
    text::probe(&probe(&FakeMachine::load(name).surroundings()), page)
}

#[test]
fn pages_of_five_machines() {
    for name in ["colab-t4", "docker-v1", "k8s-v2", "slurm-v2", "desktop-v2"] {
        insta::assert_snapshot!(name, page(name, &Page::plain(80)));
    }
}

#[test]
fn pages_of_five_machines_in_color() {
    for name in ["colab-t4", "docker-v1", "k8s-v2", "slurm-v2", "desktop-v2"] {
        // Escapes are written out, so that a diff can be read.
        let shown = page(name, &COLOR).replace('\u{1b}', "␛");
        insta::assert_snapshot!(format!("{name}-color"), shown);
    }
}

#[test]
fn color_adds_nothing_but_color() {
    for name in machine_names() {
        let colored = page(&name, &COLOR);
        let mut plain = String::new();
        let mut rest = colored.as_str();
        while let Some((before, after)) = rest.split_once('\u{1b}') {
            plain.push_str(before);
            rest = after.split_once('m').expect("an escape ends").1;
        }
        plain.push_str(rest);
        assert_eq!(plain, page(&name, &Page::plain(80)), "{name}");
    }
}

#[test]
fn no_line_is_wider_than_the_page() {
    for name in machine_names() {
        for width in [40, 60, 80] {
            for line in page(&name, &Page::plain(width)).lines() {
                let columns = line.chars().count();
                assert!(
                    columns <= width,
                    "{name} at {width}: {columns} columns in {line:?}"
                );
            }
        }
    }
}

#[test]
fn plain_terminals_get_plain_characters() {
    for name in machine_names() {
        let ascii = Page {
            width: 80,
            color: false,
            unicode: false,
        };
        let text = page(&name, &ascii);
        let odd: Vec<char> = text.chars().filter(|c| !c.is_ascii()).collect();
        // A remedy may name an ellipsis in a command; everything of ours is ASCII.
        assert!(odd.iter().all(|c| *c == '…'), "{name}: {odd:?}");
    }
}
