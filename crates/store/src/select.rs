//! What is looked up in tables, said once for all engines.

use std::sync::OnceLock;

use super::schema::{self, Table};

/// Rows that have given values in some columns, and perhaps values of a range in another.
pub(super) struct Select {
    pub table: &'static Table,
    /// What is handed over of a row.
    pub columns: &'static [&'static str],
    /// The columns that the first parameters are the values of.
    pub by: &'static [&'static str],
    /// A column whose value is the next parameter or above, and below the one after it.
    pub range: Option<&'static str>,
    /// The column that the rows are sorted by, largest first.
    pub descending: Option<&'static str>,
    sql: OnceLock<String>,
}

/// A document.
pub(super) static DOCUMENT: Select =
    Select::by_columns(&schema::RESOURCES, &["body"], &["kind", "id"]);
/// Who refers to something in a role, newest first.
pub(super) static REFERRERS: Select =
    Select::sorted_descending(&schema::LINKS, &["from_id"], &["to_id", "role"], "from_id");
/// What something refers to in a role.
pub(super) static REFERENCES: Select =
    Select::by_columns(&schema::LINKS, &["to_id"], &["from_id", "role"]);
/// Who holds a claim.
pub(super) static CLAIMANT: Select =
    Select::by_columns(&schema::CLAIMS, &["owner"], &["space", "key"]);
/// Who holds the claims of a range.
pub(super) static CLAIMANTS_IN_RANGE: Select =
    Select::in_range(&schema::CLAIMS, &["owner"], &["space"], "key");
/// What is claimed in a range.
pub(super) static CLAIMED_IN_RANGE: Select =
    Select::in_range(&schema::CLAIMS, &["key"], &["space"], "key");
/// The claims of a space.
pub(super) static CLAIMS: Select = Select::by_columns(&schema::CLAIMS, &["key"], &["space"]);
/// What a token is checked against.
pub(super) static TOKEN: Select =
    Select::by_columns(&schema::TOKENS, &["hash", "owner_id"], &["id"]);
/// The destinations that an event waits for.
pub(super) static WAITING_FOR: Select =
    Select::by_columns(&schema::WAITING_EVENTS, &["destination_id"], &["event_id"]);
/// A setting.
pub(super) static SETTING: Select = Select::by_columns(&schema::META, &["value"], &["name"]);

/// Names of columns.
type Columns = &'static [&'static str];

impl Select {
    const fn by_columns(table: &'static Table, columns: Columns, by: Columns) -> Self {
        Self { table, columns, by, range: None, descending: None, sql: OnceLock::new() }
    }

    const fn in_range(
        table: &'static Table,
        columns: Columns,
        by: Columns,
        range: &'static str,
    ) -> Self {
        let range = Some(range);
        Self { table, columns, by, range, descending: None, sql: OnceLock::new() }
    }

    const fn sorted_descending(
        table: &'static Table,
        columns: Columns,
        by: Columns,
        descending: &'static str,
    ) -> Self {
        let descending = Some(descending);
        Self { table, columns, by, range: None, descending, sql: OnceLock::new() }
    }

    /// The statement that looks the rows up.
    pub(super) fn sql(&self) -> &str {
        self.sql.get_or_init(|| {
            let (columns, table) = (self.columns.join(", "), self.table.name);
            let order = self.descending.map(|column| format!(" ORDER BY {column} DESC"));
            format!(
                "SELECT {columns} FROM {table} WHERE {}{}",
                self.where_condition(),
                order.unwrap_or_default()
            )
        })
    }

    fn where_condition(&self) -> String {
        let equal = self.by.iter().enumerate().map(|(at, name)| format!("{name} = ?{}", at + 1));
        let next = self.by.len() + 1;
        let range = self.range.map(|name| format!("{name} >= ?{next} AND {name} < ?{}", next + 1));
        equal.chain(range).collect::<Vec<_>>().join(" AND ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_select_is_one_statement() {
        assert_eq!(
            REFERRERS.sql(),
            "SELECT from_id FROM links WHERE to_id = ?1 AND role = ?2 ORDER BY from_id DESC"
        );
        assert_eq!(
            CLAIMANTS_IN_RANGE.sql(),
            "SELECT owner FROM claims WHERE space = ?1 AND key >= ?2 AND key < ?3"
        );
    }
}
