//! HTML without outside resources: cards for notebooks, without any script, and reports.

mod base64;
mod compare;
mod explain;
mod live;
mod plan;
mod predict;
mod probe;
pub mod report;

pub use compare::compare;
pub use explain::explain;
pub use live::live;
pub use minijinja::Error as RenderError;
pub use plan::plan;
pub use predict::predict;
pub use probe::probe;

use brimful::printable::is_bidirectional_control;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, HtmlEscape, Value};
use serde::Serialize;

/// A card for a notebook: everything in it is escaped.
fn card(template: &str, values: &impl Serialize) -> Result<String, RenderError> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_filter("code", code);
    environment.add_filter("image", image);
    environment
        .render_named_str("card.html", template, Value::from(Serde(values)))
        .map(|page| harmless(&page))
}

/// The elements of an SVG picture as the source of an image: notebooks remove SVG elements from what is not trusted.
fn image(elements: &str, view_box: &str) -> Value {
    let picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{}\" preserveAspectRatio=\"none\">{elements}</svg>",
        HtmlEscape(view_box)
    );
    Value::from_safe_string(format!(
        "data:image/svg+xml;base64,{}",
        base64::encode(picture.as_bytes())
    ))
}

/// A page without characters that change the direction of what is shown: a name could read as another one.
fn harmless(page: &str) -> String {
    page.chars()
        .filter(|c| !is_bidirectional_control(*c))
        .collect()
}

/// Shows what stands between backticks as code; everything is escaped first.
fn code(text: &str) -> Value {
    let escaped = HtmlEscape(text).to_string();
    let pieces: Vec<&str> = escaped.split('`').collect();
    if pieces.len().is_multiple_of(2) {
        return Value::from_safe_string(escaped);
    }
    let marked = pieces
        .iter()
        .enumerate()
        .map(|(idx, piece)| match idx % 2 {
            0 => (*piece).to_owned(),
            _ => format!("<code>{piece}</code>"),
        })
        .collect();
    Value::from_safe_string(marked)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_page_loses_what_turns_text_around_and_nothing_else() {
        let page = "<b>safe\u{202e}gpj.\u{2066}x\u{200f}</b>\n<i>שלום</i>";
        assert_eq!(super::harmless(page), "<b>safegpj.x</b>\n<i>שלום</i>");
    }
}
