//! A table in comma-separated values, by column name.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// One row; an empty cell is absent.
pub(super) type Cells = BTreeMap<String, String>;

/// The rows of a table.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub rows: Vec<Cells>,
    /// Lines that do not have as many cells as the first.
    pub odd_lines: usize,
}

/// Reads a table, or nothing if the file is not there.
pub(super) fn read(path: &Path) -> io::Result<Option<Table>> {
    if !path.is_file() {
        return Ok(None);
    }
    Ok(Some(parse(&std::fs::read_to_string(path)?)))
}

pub(super) fn parse(text: &str) -> Table {
    let mut lines = text.trim_start_matches('\u{feff}').lines();
    let header = split(lines.next().unwrap_or_default());
    let mut table = Table::default();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let cells = split(line);
        if cells.len() != header.len() {
            table.odd_lines += 1;
            continue;
        }
        let pairs = header.iter().cloned().zip(cells);
        let row = pairs.filter(|(_, cell)| !cell.is_empty()).collect();
        table.rows.push(row);
    }
    table
}

/// The cells of one line; a cell in quotes may hold commas, and quotes doubled.
fn split(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let cell = cells.last_mut().expect("there is always a cell");
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                cell.push('"');
                characters.next();
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            other => cell.push(other),
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_in_quotes_keep_their_commas() {
        let rows = parse("a,b,c\n1,\"x, \"\"y\"\"\",\n").rows;
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].get("b").map(String::as_str), Some("x, \"y\""));
        assert_eq!(rows[0].get("c"), None);
    }

    #[test]
    fn lines_with_a_wrong_number_of_cells_are_counted() {
        let table = parse("a,b\n1\n1,2\n\n1,2,3\n");
        assert_eq!((table.rows.len(), table.odd_lines), (1, 2));
    }
}
