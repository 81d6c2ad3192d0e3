//! The tables of a database, as numbered migrations.
//!
//! A migration says what it adds in words that belong to no engine; each engine says it in its own. Its
//! number is the same in every engine, and a database carries the number of the last one that it had.
//! What has been released is never changed: a change of the tables is a migration of its own, at the end.

/// What a column holds; no column may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ColumnType {
    Text,
    Bytes,
    Integer,
}

/// A table; its rows are found by its key and kept in the order of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Table {
    pub name: &'static str,
    pub columns: &'static [(&'static str, ColumnType)],
    pub key: &'static [&'static str],
}

impl Table {
    /// The names of its columns.
    pub(super) fn column_names(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().map(|(name, _)| *name)
    }

    /// Where a column stands among the others.
    pub(super) fn column_position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|(name, _)| *name == column)
    }
}

/// A second way to find the rows of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Index {
    pub name: &'static str,
    pub table: &'static str,
    pub columns: &'static [&'static str],
}

/// One thing that a migration does.
#[derive(Debug, Clone, Copy)]
pub(super) enum SchemaChange {
    CreateTable(Table),
    CreateIndex(Index),
}

/// What leads from one schema to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Migration {
    /// The number of the schema that it leads to.
    pub number: i64,
    pub changes: &'static [SchemaChange],
}

use ColumnType::{Bytes, Integer, Text};
use SchemaChange::{CreateIndex, CreateTable};

/// All migrations, in the order of their numbers, which start at 1 and leave none out.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration { number: 1, changes: FIRST },
    Migration { number: 2, changes: AUDIT },
    Migration { number: 3, changes: DELIVERIES },
    Migration { number: 4, changes: EVENTS },
];

/// Settings of the database itself.
pub(super) const META: Table =
    Table { name: "meta", columns: &[("name", Text), ("value", Text)], key: &["name"] };

/// Documents.
pub(super) const RESOURCES: Table = Table {
    name: "resources",
    columns: &[("kind", Text), ("id", Text), ("body", Text)],
    key: &["kind", "id"],
};

/// What refers to what, in which role.
pub(super) const LINKS: Table = Table {
    name: "links",
    columns: &[("from_id", Text), ("role", Text), ("to_id", Text)],
    key: &["from_id", "role", "to_id"],
};

/// What is somebody's alone.
pub(super) const CLAIMS: Table = Table {
    name: "claims",
    columns: &[("space", Text), ("key", Text), ("owner", Text)],
    key: &["space", "key"],
};

/// What the tokens of keys and credentials are checked against.
pub(super) const TOKENS: Table = Table {
    name: "tokens",
    columns: &[("id", Text), ("hash", Bytes), ("owner_id", Text)],
    key: &["id"],
};

/// What was changed by whom.
pub(super) const AUDIT_EVENTS: Table = Table {
    name: "audit_events",
    columns: &[("id", Text), ("at", Integer), ("body", Text)],
    key: &["id"],
};

/// What audit events can be found by.
pub(super) const AUDIT_TERMS: Table = Table {
    name: "audit_terms",
    columns: &[("term", Text), ("at", Integer), ("event_id", Text)],
    key: &["term", "at", "event_id"],
};

/// Events that wait to be delivered, as schema 3 had them: with a body for each destination. What waits there
/// is moved when its destination is delivered to.
pub(super) const EVENT_DELIVERIES: Table = Table {
    name: "event_deliveries",
    columns: &[
        ("destination_id", Text),
        ("event_id", Text),
        ("at", Integer),
        ("subscriptions", Text),
        ("body", Text),
    ],
    key: &["destination_id", "event_id"],
};

/// Events of which one waits to be delivered somewhere, each once.
pub(super) const STORED_EVENTS: Table =
    Table { name: "events", columns: &[("id", Text), ("body", Text)], key: &["id"] };

/// Events that wait to be delivered; identifiers of events grow, so they are in the order of commits.
pub(super) const WAITING_EVENTS: Table = Table {
    name: "waiting_events",
    columns: &[("destination_id", Text), ("event_id", Text), ("at", Integer), ("bytes", Integer)],
    key: &["destination_id", "event_id"],
};

/// Resources, what they refer to, and the tokens of keys.
const FIRST: &[SchemaChange] = &[
    CreateTable(META),
    CreateTable(RESOURCES),
    CreateTable(LINKS),
    CreateIndex(Index { name: "links_to", table: "links", columns: &["to_id", "role", "from_id"] }),
    CreateTable(CLAIMS),
    CreateIndex(Index { name: "claims_owner", table: "claims", columns: &["owner", "space"] }),
    CreateTable(TOKENS),
];

/// Events in the order of their times, and what they can be found by.
const AUDIT: &[SchemaChange] = &[
    CreateTable(AUDIT_EVENTS),
    CreateIndex(Index { name: "audit_events_at", table: "audit_events", columns: &["at", "id"] }),
    CreateTable(AUDIT_TERMS),
];

/// Events on their way.
const DELIVERIES: &[SchemaChange] = &[CreateTable(EVENT_DELIVERIES)];

/// Events on their way, each stored once for all its destinations.
const EVENTS: &[SchemaChange] = &[
    CreateTable(STORED_EVENTS),
    CreateTable(WAITING_EVENTS),
    CreateIndex(Index {
        name: "waiting_events_event",
        table: "waiting_events",
        columns: &["event_id", "destination_id"],
    }),
];

/// The number of the newest schema.
pub(super) const NEWEST: i64 = MIGRATIONS.len() as i64;

/// The tables of a schema, in the order in which they were added.
pub(super) fn tables_of(schema: i64) -> impl Iterator<Item = &'static Table> {
    let migrations = MIGRATIONS.iter().filter(move |migration| migration.number <= schema);
    migrations.flat_map(|migration| migration.changes).filter_map(|change| match change {
        CreateTable(table) => Some(table),
        CreateIndex(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_without_gaps() {
        let numbers: Vec<_> = MIGRATIONS.iter().map(|migration| migration.number).collect();

        assert_eq!(numbers, (1..=NEWEST).collect::<Vec<_>>());
    }
}
