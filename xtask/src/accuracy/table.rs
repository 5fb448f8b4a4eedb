//! A table in comma-separated values, by column name.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// One row; an empty cell is absent.
pub(super) type Cells = BTreeMap<String, String>;

/// Reads a table, or nothing if the file is not there.
pub(super) fn read(path: &Path) -> Result<Option<Vec<Cells>>> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{} cannot be read", path.display()))?;
    parse(&text)
        .with_context(|| format!("in {}", path.display()))
        .map(Some)
}

fn parse(text: &str) -> Result<Vec<Cells>> {
    let mut lines = text.lines();
    let header = split(lines.next().unwrap_or_default());
    let mut rows = Vec::new();
    for (number, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
        let cells = split(line);
        ensure!(
            cells.len() == header.len(),
            "expected {} cells in line {}, found {}",
            header.len(),
            number + 2,
            cells.len()
        );
        let pairs = header.iter().cloned().zip(cells);
        rows.push(pairs.filter(|(_, cell)| !cell.is_empty()).collect());
    }
    Ok(rows)
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
        let rows = parse("a,b,c\n1,\"x, \"\"y\"\"\",\n").unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].get("b").map(String::as_str), Some("x, \"y\""));
        assert_eq!(rows[0].get("c"), None);
    }

    #[test]
    fn a_short_line_is_named() {
        assert!(
            parse("a,b\n1\n")
                .unwrap_err()
                .to_string()
                .contains("line 2")
        );
    }
}
