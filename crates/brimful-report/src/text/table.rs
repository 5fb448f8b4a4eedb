//! Tables in plain columns: the first to the left, the others to the right.

use brimful::printable::is_printable;

use crate::text::page::{Page, Role, width_of};

/// A table with a heading line. Columns are two blanks apart; cells may not hold color.
pub(super) fn table(page: &Page, heading: &[&str], rows: &[Vec<String>]) -> String {
    // Names and settings may come from a hostile file.
    let harmless = |cell: &String| {
        cell.chars()
            .filter(|c| is_printable(*c))
            .collect::<String>()
    };
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(harmless).collect())
        .collect();
    let columns = heading.len();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| width_of(cell))
            .chain([width_of(heading[column])])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |cells: &[String]| {
        let mut out = String::from(" ");
        for (column, cell) in cells.iter().enumerate() {
            let pad = " ".repeat(widths[column].saturating_sub(width_of(cell)));
            out.push_str(if column == 0 { " " } else { "  " });
            if column == 0 {
                out.push_str(cell);
                out.push_str(&pad);
            } else {
                out.push_str(&pad);
                out.push_str(cell);
            }
        }
        out.trim_end().to_owned()
    };
    let heading: Vec<String> = heading.iter().map(|cell| (*cell).to_owned()).collect();
    let mut out = page.paint(Role::Label, &line(&heading));
    out.push('\n');
    for row in &rows {
        out.push_str(&line(row));
        out.push('\n');
    }
    out
}
