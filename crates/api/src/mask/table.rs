//! Tables in lines, such as CSV (RFC 4180): the cells of columns with the name of a secret.

use std::borrow::Cow;
use std::ops::Range;

use super::labels::{LabelReach, PairRole, pair_role};
use super::{MASK, text, work};
use crate::secrets::{is_secret, is_visible_scalar};

/// The types of tables.
const TABLE_TYPES: [&str; 2] = ["csv", "tab-separated-values"];
/// The separators of cells.
const SEPARATORS: [u8; 4] = *b",;\t|";

/// Returns true for the media type of a table.
pub(super) fn is_table(media_type: &str) -> bool {
    TABLE_TYPES.iter().any(|known| media_type.ends_with(known))
}

/// Masks a table whose first row has the names of the columns. The rest is masked as a text.
pub(super) fn mask_table(source: &str) -> String {
    let mut rest = source;
    let first = next_row(rest, None);
    let separator = separator_of(rest.get(..first.length).unwrap_or_default());
    let header = next_row(rest, Some(separator));
    let columns: Vec<TableColumn> =
        header.cells.iter().map(|cell| TableColumn::from_name(&cell_text(rest, cell))).collect();
    let mut masked = String::with_capacity(source.len());
    masked.push_str(rest.get(..header.length).unwrap_or_default());
    rest = rest.get(header.length..).unwrap_or_default();
    while !rest.is_empty() {
        let row = next_row(rest, Some(separator));
        masked.push_str(&masked_row(rest, &row, &columns));
        rest = rest.get(row.length..).unwrap_or_default();
    }
    text(&masked).into_owned()
}

/// A column of a table.
struct TableColumn {
    name: String,
    is_secret: bool,
    role: Option<PairRole>,
}

impl TableColumn {
    fn from_name(name: &str) -> Self {
        Self { name: name.to_owned(), is_secret: is_secret(name), role: pair_role(name) }
    }
}

/// A row of a table: the places of its cells, and its length with the line end.
struct CellRow {
    cells: Vec<Range<usize>>,
    length: usize,
}

/// Reads a row, whose cells may be in quotes and have line ends in them.
fn next_row(source: &str, separator: Option<u8>) -> CellRow {
    let bytes = source.as_bytes();
    let (mut cells, mut start, mut at) = (Vec::new(), 0, 0);
    let mut is_quoted = false;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            // Two quotes inside of a cell end a quoted text and begin the next.
            b'"' if is_quoted || at == start || bytes.get(at - 1) == Some(&b'"') => {
                is_quoted = !is_quoted
            }
            _ if is_quoted => {}
            b'\r' | b'\n' => break,
            byte if separator == Some(byte) => {
                cells.push(start..at);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    cells.push(start..at);
    let ends =
        bytes.get(at..).unwrap_or_default().iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    let length = at + ends.count();
    work::count_bytes(length);
    CellRow { cells, length }
}

/// Returns the separator that the first row has most often.
fn separator_of(row: &str) -> u8 {
    let count = |separator: &u8| row.bytes().filter(|byte| byte == separator).count();
    SEPARATORS.into_iter().rev().max_by_key(count).unwrap_or(b',')
}

/// Returns a row without its secrets. A cell beyond the last column may belong to a secret that is not in quotes.
fn masked_row(source: &str, row: &CellRow, columns: &[TableColumn]) -> String {
    let cells = || row.cells.iter().zip(columns);
    let labels = cells().filter(|(_, column)| column.role == Some(PairRole::Name));
    let reach = labels
        .filter_map(|(cell, column)| LabelReach::from_label(&column.name, &cell_text(source, cell)))
        .max();
    let has_secret = columns.iter().any(|column| column.is_secret);
    let mut masked = String::with_capacity(row.length);
    let mut copied = 0;
    for (number, cell) in row.cells.iter().enumerate() {
        let column = columns.get(number);
        let name = column.map_or("", |column| column.name.as_str());
        let written = source.get(cell.clone()).unwrap_or_default();
        let role = column.and_then(|column| column.role);
        let is_named = column.map_or(has_secret, |column| column.is_secret);
        let is_value = reach.zip(role).is_some_and(|(reach, role)| reach.hides_role(role));
        let content = written.trim().trim_matches('"');
        // Quotes in a cell are doubled, so that the text around the cell does not show the form of its content.
        let has_inner = content.contains("\"\"") && {
            let inner = cell_text(source, cell);
            text(&inner) != inner
        };
        masked.push_str(source.get(copied..cell.start).unwrap_or_default());
        copied = cell.end;
        let is_hidden = is_named || is_value || has_inner;
        if !is_hidden || content.is_empty() || is_visible_scalar(name, content, false) {
            masked.push_str(written);
            continue;
        }
        let quote = if written.trim_start().starts_with('"') { "\"" } else { "" };
        masked.extend([quote, MASK, quote]);
    }
    masked.push_str(source.get(copied..row.length).unwrap_or_default());
    masked
}

/// Returns the text of a cell.
fn cell_text<'a>(source: &'a str, cell: &Range<usize>) -> Cow<'a, str> {
    let written =
        source.get(cell.clone()).unwrap_or_default().trim().trim_start_matches('\u{feff}');
    let inner = written.strip_prefix('"').map(|inner| inner.strip_suffix('"').unwrap_or(inner));
    inner.map_or(written.into(), |inner| inner.replace("\"\"", "\"").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_secret_columns_are_hidden() {
        for (source, expected) in [
            ("user,password,b\nada,fish,kept\n", "user,password,b\nada,$,kept\n"),
            (
                "user;\"api key\"\r\nada;\"sword\"\"; fish\"\r\n\r\nkept;\r\n",
                "user;\"api key\"\r\nada;\"$\"\r\n\r\nkept;\r\n",
            ),
            ("a\ttoken\nkept\tsword fish\n", "a\ttoken\nkept\t$\n"),
            ("\u{feff}password,a\nfish,kept", "\u{feff}password,a\n$,kept"),
            ("a,password\nkept,\"sword\nfish\"\nkept,b\n", "a,password\nkept,\"$\"\nkept,$\n"),
            ("a,password\nkept,\"cut off, fi\nsh", "a,password\nkept,\"$\""),
            ("a,password\nkept,sword,fish\n", "a,password\nkept,$,$\n"),
            ("a,pin,max_tokens\nkept,1234,512\n", "a,pin,max_tokens\nkept,$,512\n"),
            (
                "name,value\nDB_PASSWORD,fish\nregion,kept\n",
                "name,value\nDB_PASSWORD,$\nregion,kept\n",
            ),
            ("a,b\nkept,https://me:fish@a.test/\n", "a,b\nkept,https://$@a.test/\n"),
            ("a,b\nkept,\"{\"\"token\"\": \"\"fish\"\"}\"\n", "a,b\nkept,\"$\"\n"),
            ("a\n{'token': 'sword,fish'}\n", "a\n{'token': $}\n"),
            ("a,token_type\nkept,kept\n", "a,token_type\nkept,kept\n"),
            ("", ""),
        ] {
            let expected = expected.replace('$', MASK);
            assert_eq!(mask_table(source), expected, "{source}");
            assert_eq!(mask_table(&expected), expected, "{source} twice");
        }
    }
}
