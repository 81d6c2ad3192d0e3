//! Events that wait to be delivered: written with the change that they are of, read in the order of the
//! commits, and removed once they are delivered or given up. An event is stored once, and goes with the
//! last destination that it waits for.

use std::collections::BTreeSet;

use super::tables::Param::{Integer, Text};
use super::{StoreResult, Transaction, View, schema, select};

/// An event that waits to be delivered.
#[derive(Debug, Clone)]
pub struct EventRow {
    /// Its identifier, which is the same at every attempt.
    pub id: String,
    /// When it happened, in seconds since the Unix epoch.
    pub at: i64,
    /// The event as JSON; empty where it is lost.
    pub body: String,
}

/// An event that is stored.
#[derive(Debug, Clone)]
pub struct EventInStore {
    /// Its identifier.
    pub id: String,
    /// Whether it waits for a destination.
    pub is_awaited: bool,
}

/// How much waits for a destination.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingTotals {
    /// How many events.
    pub count: u64,
    /// How long they are together, in bytes.
    pub bytes: u64,
}

impl WaitingTotals {
    /// Whether neither is more than in `limits`.
    pub fn is_within(self, limits: Self) -> bool {
        self.count <= limits.count && self.bytes <= limits.bytes
    }
}

/// What changes say when an event is stored for a destination; no document has such an identifier.
pub fn waiting_destination(destination_id: &str) -> String {
    format!("waiting_{destination_id}")
}

impl View<'_> {
    /// The oldest events that wait for a destination, in the order of their commits.
    pub fn waiting_events(&self, destination_id: &str, limit: usize) -> StoreResult<Vec<EventRow>> {
        self.read_waiting(
            "SELECT w.event_id, w.at, COALESCE(e.body, '')
             FROM waiting_events w LEFT JOIN events e ON e.id = w.event_id
             WHERE w.destination_id = ?1 ORDER BY w.event_id LIMIT ?2",
            destination_id,
            limit,
        )
    }

    /// As [`View::waiting_events`], of those that were stored before schema 4.
    pub fn earlier_waiting_events(
        &self,
        destination_id: &str,
        limit: usize,
    ) -> StoreResult<Vec<EventRow>> {
        self.read_waiting(
            "SELECT event_id, at, body FROM event_deliveries
             WHERE destination_id = ?1 ORDER BY event_id LIMIT ?2",
            destination_id,
            limit,
        )
    }

    fn read_waiting(
        &self,
        sql: &str,
        destination_id: &str,
        limit: usize,
    ) -> StoreResult<Vec<EventRow>> {
        let mut waiting = Vec::new();
        self.query_rows(sql, &[Text(destination_id), count_param(limit)], &mut |row| {
            let (id, at) = (row.text(0)?.to_owned(), row.integer(1)?);
            waiting.push(EventRow { id, at, body: row.text(2)?.to_owned() });
            Ok(())
        })?;
        Ok(waiting)
    }

    /// How much waits for a destination.
    pub fn waiting_totals(&self, destination_id: &str) -> StoreResult<WaitingTotals> {
        let sql = "SELECT count(*), CAST(COALESCE(sum(bytes), 0) AS BIGINT)
                   FROM waiting_events WHERE destination_id = ?1";
        let mut totals = WaitingTotals::default();
        self.query_rows(sql, &[Text(destination_id)], &mut |row| {
            totals =
                WaitingTotals { count: to_size(row.integer(0)?), bytes: to_size(row.integer(1)?) };
            Ok(())
        })?;
        Ok(totals)
    }

    /// The identifiers and lengths of the oldest events that wait for a destination.
    pub fn oldest_waiting(
        &self,
        destination_id: &str,
        limit: usize,
    ) -> StoreResult<Vec<(String, u64)>> {
        let sql = "SELECT event_id, bytes FROM waiting_events
                   WHERE destination_id = ?1 ORDER BY event_id LIMIT ?2";
        let mut oldest = Vec::new();
        self.query_rows(sql, &[Text(destination_id), count_param(limit)], &mut |row| {
            oldest.push((row.text(0)?.to_owned(), to_size(row.integer(1)?)));
            Ok(())
        })?;
        Ok(oldest)
    }

    /// The first destination behind this one for which something waits, in either way.
    pub fn next_waiting_destination(&self, last: &str) -> StoreResult<Option<String>> {
        let mut first: Option<String> = None;
        for sql in [
            "SELECT destination_id FROM waiting_events
             WHERE destination_id > ?1 ORDER BY destination_id LIMIT 1",
            "SELECT destination_id FROM event_deliveries
             WHERE destination_id > ?1 ORDER BY destination_id LIMIT 1",
        ] {
            self.query_rows(sql, &[Text(last)], &mut |row| {
                let id = row.text(0)?;
                if first.as_deref().is_none_or(|first| id < first) {
                    first = Some(id.to_owned());
                }
                Ok(())
            })?;
        }
        Ok(first)
    }

    /// Stored events behind this one, in their order.
    pub fn stored_events(&self, last: &str, limit: usize) -> StoreResult<Vec<EventInStore>> {
        let sql = "SELECT e.id, CAST(CASE WHEN EXISTS
                     (SELECT 1 FROM waiting_events w WHERE w.event_id = e.id)
                     THEN 1 ELSE 0 END AS BIGINT)
                   FROM events e WHERE e.id > ?1 ORDER BY e.id LIMIT ?2";
        let mut stored = Vec::new();
        self.query_rows(sql, &[Text(last), count_param(limit)], &mut |row| {
            let (id, awaited) = (row.text(0)?.to_owned(), row.integer(1)?);
            stored.push(EventInStore { id, is_awaited: awaited != 0 });
            Ok(())
        })?;
        Ok(stored)
    }

    /// The destinations that an event waits for.
    fn waits_for(&self, event_id: &str) -> StoreResult<Vec<String>> {
        self.select_texts(&select::WAITING_FOR, &[Text(event_id)])
    }
}

impl Transaction<'_> {
    /// Has an event be delivered to destinations, and whoever follows the database hear of it.
    pub fn put_event(
        &self,
        event: &EventRow,
        destination_ids: &BTreeSet<String>,
    ) -> StoreResult<()> {
        let EventRow { id, at, body } = event;
        self.tables.put_row(&schema::STORED_EVENTS, &[Text(id), Text(body)])?;
        destination_ids.iter().try_for_each(|destination_id| {
            let row = [Text(destination_id), Text(id), Integer(*at), count_param(body.len())];
            self.record_change(&waiting_destination(destination_id));
            self.tables.put_row(&schema::WAITING_EVENTS, &row)
        })
    }

    /// Moves events of [`View::earlier_waiting_events`] to where they wait now.
    pub fn move_earlier_events(
        &self,
        destination_id: &str,
        events: &[EventRow],
    ) -> StoreResult<()> {
        let destination_ids = BTreeSet::from([destination_id.to_owned()]);
        events.iter().try_for_each(|event| {
            self.put_event(event, &destination_ids)?;
            let (table, row) = (&schema::EVENT_DELIVERIES, [Text(destination_id), Text(&event.id)]);
            self.tables.delete_rows(table, table.key, &row)
        })
    }

    /// Removes events that are delivered to a destination, or given up.
    pub fn remove_waiting(&self, destination_id: &str, event_ids: &[String]) -> StoreResult<()> {
        self.for_each(event_ids, |event_id| {
            let is_last = self.waits_for(event_id)?.iter().all(|it| it == destination_id);
            let (table, row) = (&schema::WAITING_EVENTS, [Text(destination_id), Text(event_id)]);
            self.tables.delete_rows(table, table.key, &row)?;
            if is_last { self.remove_event(event_id) } else { Ok(()) }
        })
    }

    /// Removes what waits for a destination that is gone, in either way. The events themselves are for
    /// [`Transaction::remove_unused_events`].
    pub fn remove_left(&self, destination_id: &str, event_ids: &[String]) -> StoreResult<()> {
        event_ids.iter().try_for_each(|event_id| {
            [&schema::WAITING_EVENTS, &schema::EVENT_DELIVERIES].into_iter().try_for_each(|table| {
                self.tables.delete_rows(table, table.key, &[Text(destination_id), Text(event_id)])
            })
        })
    }

    /// Removes those of these events that wait for no destination.
    pub fn remove_unused_events(&self, event_ids: &[String]) -> StoreResult<()> {
        self.for_each(event_ids, |event_id| match self.waits_for(event_id)?.is_empty() {
            true => self.remove_event(event_id),
            false => Ok(()),
        })
    }

    fn remove_event(&self, event_id: &str) -> StoreResult<()> {
        self.tables.delete_rows(
            &schema::STORED_EVENTS,
            schema::STORED_EVENTS.key,
            &[Text(event_id)],
        )
    }
}

fn count_param(count: usize) -> super::tables::Param<'static> {
    Integer(i64::try_from(count).unwrap_or(i64::MAX))
}

fn to_size(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}
