//! Events that wait to be delivered: written with the change that they are of, read in the order of the
//! commits, and removed once they are delivered or given up.

use super::tables::Param::{Integer, Text};
use super::{StoreError, Transaction, View, schema};

/// An event that waits to be delivered to a destination.
#[derive(Debug, Clone)]
pub struct OutboxRow {
    /// The identifier of the event, which is the same at every attempt.
    pub event_id: String,
    /// When it happened, in seconds since the Unix epoch.
    pub at: i64,
    /// The event subscriptions because of which it is delivered.
    pub subscriptions: Vec<String>,
    /// The event as JSON.
    pub body: String,
}

/// What changes say when an event is stored for a destination; no document has such an identifier.
pub fn waiting_destination(destination_id: &str) -> String {
    format!("waiting_{destination_id}")
}

impl View<'_> {
    /// The oldest events that wait for a destination, in the order of their commits.
    pub fn deliveries(
        &self,
        destination_id: &str,
        limit: usize,
    ) -> Result<Vec<OutboxRow>, StoreError> {
        let sql = "SELECT event_id, at, subscriptions, body FROM event_deliveries
                   WHERE destination_id = ?1 ORDER BY event_id LIMIT ?2";
        let limit = Integer(i64::try_from(limit).unwrap_or(i64::MAX));
        let mut found = Vec::new();
        self.query(sql, &[Text(destination_id), limit], &mut |row| {
            found.push(OutboxRow {
                event_id: row.text(0)?.to_owned(),
                at: row.integer(1)?,
                subscriptions: serde_json::from_str(row.text(2)?)?,
                body: row.text(3)?.to_owned(),
            });
            Ok(())
        })?;
        Ok(found)
    }

    /// How many events wait for a destination.
    pub fn count_deliveries(&self, destination_id: &str) -> Result<i64, StoreError> {
        let sql = "SELECT count(*) FROM event_deliveries WHERE destination_id = ?1";
        let mut count = 0;
        self.query(sql, &[Text(destination_id)], &mut |row| {
            count = row.integer(0)?;
            Ok(())
        })?;
        Ok(count)
    }

    /// The identifiers of the oldest events beyond the newest `kept` ones, at most `limit`.
    pub fn surplus_deliveries(
        &self,
        destination_id: &str,
        kept: usize,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let number = |count: usize| Integer(i64::try_from(count).unwrap_or(i64::MAX));
        let sql = "SELECT event_id FROM event_deliveries WHERE destination_id = ?1
                   ORDER BY event_id DESC LIMIT 1 OFFSET ?2";
        let mut newest = None;
        self.query(sql, &[Text(destination_id), number(kept)], &mut |row| {
            newest = Some(row.text(0)?.to_owned());
            Ok(())
        })?;
        let Some(newest) = newest else { return Ok(Vec::new()) };
        let sql = "SELECT event_id FROM event_deliveries
                   WHERE destination_id = ?1 AND event_id <= ?2 ORDER BY event_id LIMIT ?3";
        let mut surplus = Vec::new();
        self.query(sql, &[Text(destination_id), Text(&newest), number(limit)], &mut |row| {
            surplus.push(row.text(0)?.to_owned());
            Ok(())
        })?;
        Ok(surplus)
    }
}

impl Transaction<'_> {
    /// Has an event be delivered to a destination, and whoever follows the database hear of it.
    pub fn put_delivery(
        &self,
        destination_id: &str,
        delivery: &OutboxRow,
    ) -> Result<(), StoreError> {
        let OutboxRow { event_id, at, subscriptions, body } = delivery;
        let subscriptions = serde_json::to_string(subscriptions)?;
        let row =
            [Text(destination_id), Text(event_id), Integer(*at), Text(&subscriptions), Text(body)];
        self.tables.put(&schema::EVENT_DELIVERIES, &row)?;
        self.note_change(&waiting_destination(destination_id));
        Ok(())
    }

    /// Removes events that are delivered to a destination, or given up.
    pub fn remove_deliveries(
        &self,
        destination_id: &str,
        event_ids: &[String],
    ) -> Result<(), StoreError> {
        event_ids.iter().try_for_each(|event_id| {
            let row = [Text(destination_id), Text(event_id)];
            self.tables.delete(&schema::EVENT_DELIVERIES, schema::EVENT_DELIVERIES.key, &row)
        })
    }

    /// Removes all events that wait for a destination.
    pub fn remove_all_deliveries(&self, destination_id: &str) -> Result<(), StoreError> {
        let row = [Text(destination_id)];
        self.tables.delete(&schema::EVENT_DELIVERIES, &["destination_id"], &row)
    }
}
