//! Audit events: appended, read in the order of their times, and removed when they are old.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::age_reading::{SETTING, StoredReading};
use super::tables::Param::{self, Integer, Text};
use super::{StoreResult, Transaction, View, schema};

/// An event as it is stored.
#[derive(Debug, Clone)]
pub struct StoredEvent {
    /// Identifiers grow, so they order the events of one moment.
    pub id: String,
    /// Microseconds since the Unix epoch.
    pub at: i64,
    /// The event as JSON.
    pub body: String,
    /// What the event can be found by.
    pub terms: Vec<String>,
}

/// Which events are asked for.
#[derive(Debug, Clone, Default)]
pub struct EventQuery {
    /// At this time or later, in microseconds since the Unix epoch.
    pub after: Option<i64>,
    /// Before this time.
    pub before: Option<i64>,
    /// Older than the event with this identifier.
    pub before_id: Option<String>,
    /// With all of these terms; the one that the fewest events have comes first.
    pub terms: Vec<String>,
    /// As many at most.
    pub limit: usize,
}

impl View<'_> {
    /// The bodies of events, newest first.
    pub fn audit_events(&self, query: &EventQuery) -> StoreResult<Vec<String>> {
        let Some((at, id)) = self.upper_bound(query)? else { return Ok(Vec::new()) };
        let (after, limit) = (query.after.unwrap_or(i64::MIN), i64::try_from(query.limit));
        let limit = Integer(limit.unwrap_or(i64::MAX));
        let mut values = vec![Integer(after), Integer(at), Text(&id), limit];
        values.extend(query.terms.iter().map(|term| Text(term)));
        let mut bodies = Vec::new();
        self.query_rows(&events_sql(query.terms.len()), &values, &mut |row| {
            bodies.push(row.text(0)?.to_owned());
            Ok(())
        })?;
        Ok(bodies)
    }

    /// The body of the event with this identifier.
    pub fn audit_event(&self, id: &str) -> StoreResult<Option<String>> {
        self.optional_text("SELECT body FROM audit_events WHERE id = ?1", &[Text(id)])
    }

    /// The largest identifier of an event.
    pub fn newest_event_id(&self) -> StoreResult<Option<String>> {
        self.optional_text("SELECT id FROM audit_events ORDER BY id DESC LIMIT 1", &[])
    }

    /// The time of the newest event, in microseconds since the Unix epoch.
    pub fn newest_event_time(&self) -> StoreResult<Option<i64>> {
        let mut time = None;
        let sql = "SELECT at FROM audit_events ORDER BY at DESC, id DESC LIMIT 1";
        self.query_rows(sql, &[], &mut |row| {
            time = Some(row.integer(0)?);
            Ok(())
        })?;
        Ok(time)
    }

    /// The last reading of the clock, or the time of the newest event if an earlier version has written the database.
    pub(super) fn age_reading(&self) -> StoreResult<Option<StoredReading>> {
        if let Some(text) = self.find_setting(SETTING)? {
            return Ok(serde_json::from_str(&text).ok());
        }
        let newest = self.newest_event_time()?;
        let seconds = newest.and_then(|micros| u64::try_from(micros / 1_000_000).ok());
        Ok(seconds.map(|at| StoredReading { at, pause: 0, confirmations: 0 }))
    }

    /// The time of the PostgreSQL server.
    pub(super) fn server_time(&self) -> StoreResult<SystemTime> {
        let mut micros = 0;
        let sql = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)";
        self.query_rows(sql, &[], &mut |row| {
            micros = row.integer(0)?;
            Ok(())
        })?;
        Ok(UNIX_EPOCH + Duration::from_micros(u64::try_from(micros).unwrap_or_default()))
    }

    /// True when there is an event before a time.
    pub fn has_event_before(&self, before: i64) -> StoreResult<bool> {
        let sql = "SELECT id FROM audit_events WHERE at < ?1 LIMIT 1";
        Ok(self.optional_text(sql, &[Integer(before)])?.is_some())
    }

    /// The time and identifier that all events asked for are below; none where there are no such events.
    fn upper_bound(&self, query: &EventQuery) -> StoreResult<Option<(i64, String)>> {
        let before = (query.before.unwrap_or(i64::MAX), String::new());
        let Some(id) = &query.before_id else { return Ok(Some(before)) };
        // The event may be gone; then the page begins where it was.
        let sql = "SELECT at FROM audit_events WHERE id <= ?1 ORDER BY id DESC LIMIT 1";
        let mut at = None;
        self.query_rows(sql, &[Text(id)], &mut |row| {
            at = Some(row.integer(0)?);
            Ok(())
        })?;
        Ok(at.map(|at| before.min((at, id.clone()))))
    }

    fn optional_text(&self, sql: &str, values: &[Param<'_>]) -> StoreResult<Option<String>> {
        let mut found = None;
        self.query_rows(sql, values, &mut |row| {
            found = Some(row.text(0)?.to_owned());
            Ok(())
        })?;
        Ok(found)
    }
}

/// Reads from the index of the first term, or of the times where there is none.
fn events_sql(terms: usize) -> String {
    if terms == 0 {
        return "SELECT body FROM audit_events WHERE at >= ?1 AND (at, id) < (?2, ?3)
                ORDER BY at DESC, id DESC LIMIT ?4"
            .to_owned();
    }
    let others = (6..5 + terms).map(|place| {
        format!(
            "AND EXISTS (SELECT 1 FROM audit_terms
                 WHERE term = ?{place} AND at = t.at AND event_id = t.event_id) "
        )
    });
    format!(
        "SELECT e.body FROM audit_terms AS t CROSS JOIN audit_events AS e
         WHERE e.id = t.event_id AND t.term = ?5 AND t.at >= ?1 AND (t.at, t.event_id) < (?2, ?3) {}
         ORDER BY t.at DESC, t.event_id DESC LIMIT ?4",
        others.collect::<String>()
    )
}

impl Transaction<'_> {
    /// Adds an event; there is no way to change one.
    pub fn append_event(&self, event: &StoredEvent) -> StoreResult<()> {
        let (id, at) = (Text(&event.id), Integer(event.at));
        self.tables.put_row(&schema::AUDIT_EVENTS, &[id, at, Text(&event.body)])?;
        event
            .terms
            .iter()
            .try_for_each(|term| self.tables.put_row(&schema::AUDIT_TERMS, &[Text(term), at, id]))
    }

    /// Removes the oldest events before a time, at most so many; gives how many there were. `terms_of`
    /// says what an event was found by.
    pub fn prune_events(
        &self,
        before: i64,
        most: usize,
        terms_of: impl Fn(&str) -> Vec<String>,
    ) -> StoreResult<usize> {
        let old = self.old_events(before, most)?;
        for (id, at, body) in &old {
            for term in terms_of(body) {
                let row = [Text(&term), Integer(*at), Text(id)];
                self.tables.delete_rows(&schema::AUDIT_TERMS, schema::AUDIT_TERMS.key, &row)?;
            }
            self.tables.delete_rows(
                &schema::AUDIT_EVENTS,
                schema::AUDIT_EVENTS.key,
                &[Text(id)],
            )?;
        }
        Ok(old.len())
    }

    fn old_events(&self, before: i64, most: usize) -> StoreResult<Vec<(String, i64, String)>> {
        let sql = "SELECT id, at, body FROM audit_events WHERE at < ?1 ORDER BY at, id LIMIT ?2";
        let limit = Integer(i64::try_from(most).unwrap_or(i64::MAX));
        let mut old = Vec::new();
        self.query_rows(sql, &[Integer(before), limit], &mut |row| {
            old.push((row.text(0)?.to_owned(), row.integer(1)?, row.text(2)?.to_owned()));
            Ok(())
        })?;
        Ok(old)
    }
}
