//! Renders brimful's values for people and programs: terminal text, HTML, JSON. Reads nothing, decides nothing.
//!
//! Each rendering is a function of values, so a page can be made again from a recorded machine at any time.
//!
//! Read first: [`json::ProbeDocument`], the outward form of a machine (from which the JSON Schema and the Python
//! classes are made), and [`text::probe`], the page in the terminal.
//!
//! ```
//! use brimful::profiles;
//! use brimful_report::{json, text};
//!
//! let machine = profiles::find("colab-t4").unwrap().machine();
//! let document = json::ProbeDocument::of(&machine);
//! assert_eq!(document.platform.name, "colab");
//! assert!(text::probe(&machine, &text::Page::plain(80)).contains("12.67 GiB"));
//! ```

pub mod html;
pub mod json;
pub mod text;
