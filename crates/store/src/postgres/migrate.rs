//! Brings a database of PostgreSQL to the newest schema: all at once, or not at all.
//!
//! All tables are in a schema of their own, so that they meet nobody else's. The row of `cluster` says
//! which schema the database has, and is the lock that all nodes share; `changes` has a row for each
//! version, for the nodes that have not seen it yet and for those that do not know whether it is theirs.

use ginnel_api::id::Ids;

use super::error::ServerError;
use super::server::ServerSession;
use super::statements::sql_type;
use crate::schema::{self, Index, MIGRATIONS, SchemaChange, Table};
use crate::tables::Row;
use crate::{StoreError, StoreResult};

/// What holds while tables are made; other nodes may be at the same.
pub(super) const SETTINGS: &str = "SET search_path = ginnel;
    SET lock_timeout = '30s'; SET idle_in_transaction_session_timeout = '30s'";
/// What is there before any migration, and how often it is tried to make it. The table has one row.
const MAX_ATTEMPTS: usize = 4;
const HOUSEKEEPING: &str = "
    CREATE SCHEMA IF NOT EXISTS ginnel;
    CREATE TABLE IF NOT EXISTS cluster (
        id boolean PRIMARY KEY DEFAULT true CHECK (id),
        schema bigint NOT NULL,
        version bigint NOT NULL,
        last_id text COLLATE \"C\" NOT NULL
    ) WITH (fillfactor = 10, autovacuum_vacuum_threshold = 1000);
    CREATE TABLE IF NOT EXISTS changes (
        version bigint PRIMARY KEY,
        token bytea NOT NULL,
        ids text NOT NULL
    );
    INSERT INTO cluster (schema, version, last_id) VALUES (0, 0, '') ON CONFLICT DO NOTHING";

/// Refuses a database that cannot hold every text: one caller's would be refused in the midst of others'.
fn check_encoding(session: &ServerSession, address: &str) -> StoreResult<()> {
    let rows = session.query("SELECT current_setting('server_encoding')", &[])?;
    let encoding = rows.first().map(|row| row.text(0)).transpose()?.unwrap_or_default();
    match encoding {
        "UTF8" => Ok(()),
        _ => Err(StoreError::Encoding { path: address.into(), found: encoding.to_owned() }),
    }
}

/// Makes the tables that are missing; gives what makes identifiers larger than those stored.
pub(super) fn prepare_tables(session: &ServerSession, ids: Ids, address: &str) -> StoreResult<Ids> {
    check_encoding(session, address)?;
    // Nodes that make the same at once hinder each other, and find it then.
    let made = (1..MAX_ATTEMPTS).any(|_| session.execute(HOUSEKEEPING).is_ok());
    if !made {
        session.execute(HOUSEKEEPING)?;
    }
    session.execute("BEGIN ISOLATION LEVEL READ COMMITTED")?;
    let prepared = migrate_schema(session, address);
    session.execute(if prepared.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    ids.continue_after(&prepared?);
    Ok(ids)
}

/// Makes the tables in a transaction that is open already, and that takes them back if it ends without
/// success; gives what makes identifiers larger than those stored.
pub(super) fn prepare_within(session: &ServerSession, ids: Ids, address: &str) -> StoreResult<Ids> {
    check_encoding(session, address)?;
    session.execute(HOUSEKEEPING)?;
    ids.continue_after(&migrate_schema(session, address)?);
    Ok(ids)
}

/// Gives the last identifier.
fn migrate_schema(session: &ServerSession, address: &str) -> StoreResult<String> {
    let rows = session.query("SELECT schema, last_id FROM cluster FOR UPDATE", &[])?;
    let row = rows.first().ok_or(StoreError::Inconsistent("the database has no version"))?;
    let (found, last_id) = (row.integer(0)?, row.text(1)?.to_owned());
    if !(0..=schema::NEWEST).contains(&found) {
        let path = address.into();
        return Err(StoreError::Newer { path, found, known: schema::NEWEST });
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.number > found) {
        for change in migration.changes {
            session.execute(&change_sql(change))?;
        }
    }
    set_schema(session)?;
    Ok(last_id)
}

fn set_schema(session: &ServerSession) -> Result<(), ServerError> {
    session.query("UPDATE cluster SET schema = ?1", &[&schema::NEWEST]).map(drop)
}

/// A change in the words of PostgreSQL; texts are in the order of their bytes, as everywhere else.
fn change_sql(change: &SchemaChange) -> String {
    match change {
        SchemaChange::CreateTable(Table { name, columns, key }) => {
            let columns = columns.iter().map(|(name, kind)| {
                let collation =
                    if *kind == schema::ColumnType::Text { " COLLATE \"C\"" } else { "" };
                format!("{name} {}{collation} NOT NULL, ", sql_type(*kind))
            });
            let (columns, key) = (columns.collect::<String>(), key.join(", "));
            format!("CREATE TABLE {name} ({columns}PRIMARY KEY ({key}))")
        }
        SchemaChange::CreateIndex(Index { name, table, columns }) => {
            format!("CREATE INDEX {name} ON {table} ({})", columns.join(", "))
        }
    }
}
