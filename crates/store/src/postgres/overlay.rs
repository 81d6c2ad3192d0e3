//! What the jobs of a batch have read and changed, before any of it is stored.
//!
//! A job runs without a word to the server: what it changes is kept here, and what it reads must be
//! here. A job that reads what is not here yet is run again when it has been fetched, together with what
//! the other jobs of the batch lack. So a batch costs as many round trips as its deepest chain of reads.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::tables::storable_text;
use crate::schema::Table;
use crate::select::Select;
use crate::tables::{Keep, Param, Row, Value};
use crate::{StoreError, StoreResult};

/// The values of a row, in the order of the columns of its table.
pub(super) type StoredRow = Vec<Value>;

/// Which rows are looked up, but for the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LookupShape {
    pub table: &'static Table,
    pub by: &'static [&'static str],
    pub range: Option<&'static str>,
}

/// Which rows are looked up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Lookup {
    pub shape: LookupShape,
    pub values: Vec<Value>,
}

/// What is to be stored: rows to remove, then rows to put in their place.
#[derive(Default)]
pub(super) struct Layer {
    pub removed: HashMap<LookupShape, HashSet<Vec<Value>>>,
    pub rows: HashMap<&'static str, TableRows>,
}

/// Rows by their keys.
type KeyedRows = BTreeMap<Vec<Value>, StoredRow>;

/// The rows of one table.
pub(super) struct TableRows {
    pub table: &'static Table,
    pub rows: KeyedRows,
}

/// What the jobs of a batch have read and changed.
#[derive(Default)]
pub(super) struct Overlay {
    /// What is stored, as far as it was looked up.
    fetched: HashMap<Lookup, KeyedRows>,
    /// What the jobs have changed that are done.
    done: Layer,
    /// What the job changes that runs.
    current: Layer,
    /// Identifiers that no stored row has.
    new_ids: HashSet<String>,
    /// What was looked up in vain.
    missing: Vec<Lookup>,
    /// True when the job that runs needs a query, which is not answered here.
    needs_query: bool,
}

/// How a job ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JobEnd {
    /// It is done, or refused: its result counts.
    Done,
    /// It is to be run again once more has been fetched.
    Unfetched,
    /// It needs a query.
    NeedsQuery,
}

impl LookupShape {
    fn from_select(select: &'static Select) -> Self {
        Self { table: select.table, by: select.by, range: select.range }
    }

    /// The values that a row has in the columns that it is looked up by.
    pub(super) fn values_of(&self, row: &[Value]) -> Vec<Value> {
        let positions = self.by.iter().filter_map(|name| self.table.column_position(name));
        positions.filter_map(|at| row.get(at).cloned()).collect()
    }

    /// True when the row has these values.
    pub(super) fn matches_row(&self, row: &[Value], values: &[Value]) -> bool {
        let of = |name: &str| self.table.column_position(name).and_then(|at| row.get(at));
        let is_equal = self.by.iter().zip(values).all(|(name, value)| of(name) == Some(value));
        let in_range = || match (self.range, values.get(self.by.len()..)) {
            (Some(name), Some([from, to])) => of(name).is_some_and(|it| from <= it && it < to),
            _ => true,
        };
        is_equal && in_range()
    }
}

/// A value as the server will have it.
fn storable_value(value: &Param<'_>) -> Value {
    match value {
        Param::Text(text) => Value::Text(storable_text(text).into_owned()),
        other => Value::from(*other),
    }
}

impl Lookup {
    fn from_select(select: &'static Select, values: &[Param<'_>]) -> Self {
        let values = values.iter().map(storable_value).collect();
        Self { shape: LookupShape::from_select(select), values }
    }
}

impl Layer {
    pub(super) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.rows.is_empty()
    }

    fn put_row(&mut self, table: &'static Table, row: StoredRow) {
        let key = key_of(table, &row);
        self.rows_of(table).rows.insert(key, row);
    }

    /// Forgets the rows of this layer with these values.
    fn remove_rows(&mut self, shape: LookupShape, values: &[Value]) {
        if let Some(of_table) = self.rows.get_mut(shape.table.name) {
            of_table.rows.retain(|_, row| !shape.matches_row(row, values));
        }
    }

    /// Lays another layer on this one. Of identifiers that are new nothing is stored that could be removed,
    /// only what this layer has of them.
    fn merge_later(&mut self, later: Self, new_ids: &HashSet<String>) {
        for (shape, mut all) in later.removed {
            all.iter().for_each(|values| self.remove_rows(shape, values));
            all.retain(|values| !has_any(values, new_ids));
            if !all.is_empty() {
                self.removed.entry(shape).or_default().extend(all);
            }
        }
        for TableRows { table, rows } in later.rows.into_values() {
            self.rows_of(table).rows.extend(rows);
        }
    }

    fn rows_of(&mut self, table: &'static Table) -> &mut TableRows {
        let empty = || TableRows { table, rows: BTreeMap::new() };
        self.rows.entry(table.name).or_insert_with(empty)
    }

    fn has_removed(&self, table: &Table, row: &[Value]) -> bool {
        let mut removals = self.removed.iter().filter(|(shape, _)| shape.table.name == table.name);
        removals.any(|(shape, all)| all.contains(&shape.values_of(row)))
    }

    /// Changes what was found below as this layer says.
    fn apply_to_rows<'a>(
        &'a self,
        lookup: &Lookup,
        found: &mut BTreeMap<&'a [Value], &'a StoredRow>,
    ) {
        let Lookup { shape, values } = lookup;
        found.retain(|_, row| !self.has_removed(shape.table, row));
        let Some(of_table) = self.rows.get(shape.table.name) else { return };
        if shape.by == shape.table.key {
            if let Some((key, row)) = of_table.rows.get_key_value(values) {
                found.insert(key, row);
            }
            return;
        }
        for (key, row) in &of_table.rows {
            if shape.matches_row(row, values) {
                found.insert(key, row);
            } else {
                found.remove(key.as_slice());
            }
        }
    }
}

impl Overlay {
    /// Begins with a job.
    pub(super) fn begin_job(&mut self) {
        self.current = Layer::default();
        self.missing.clear();
        self.needs_query = false;
    }

    /// Ends with a job: what it has changed is kept if it was made.
    pub(super) fn end_job(&mut self, is_made: bool, unfetched: &mut HashSet<Lookup>) -> JobEnd {
        let current = std::mem::take(&mut self.current);
        if self.needs_query {
            return JobEnd::NeedsQuery;
        }
        if !self.missing.is_empty() {
            unfetched.extend(self.missing.drain(..));
            return JobEnd::Unfetched;
        }
        if is_made {
            self.done.merge_later(current, &self.new_ids);
        }
        JobEnd::Done
    }

    /// What was fetched.
    pub(super) fn set_fetched(&mut self, lookup: Lookup, rows: Vec<StoredRow>) {
        let table = lookup.shape.table;
        let rows = rows.into_iter().map(|row| (key_of(table, &row), row));
        self.fetched.insert(lookup, rows.collect());
    }

    /// The rows with these values; fails when they have not been fetched. Nothing is copied: every job of a
    /// batch may look at the same thousands.
    pub(super) fn select_rows(
        &mut self,
        select: &'static Select,
        values: &[Param<'_>],
    ) -> StoreResult<Vec<&StoredRow>> {
        let lookup = Lookup::from_select(select, values);
        let stored = self.fetched.get(&lookup);
        if stored.is_none() && !self.is_new(&lookup.values) {
            self.missing.push(lookup);
            return Err(StoreError::Unfetched);
        }
        let stored = stored.into_iter().flatten();
        let mut found: BTreeMap<_, _> = stored.map(|(key, row)| (key.as_slice(), row)).collect();
        self.done.apply_to_rows(&lookup, &mut found);
        self.current.apply_to_rows(&lookup, &mut found);
        let mut rows: Vec<_> = found.into_values().collect();
        if let Some(at) = select.descending.and_then(|column| select.table.column_position(column))
        {
            rows.sort_by(|one, other| other.get(at).cmp(&one.get(at)));
        }
        Ok(rows)
    }

    pub(super) fn put_row(&mut self, table: &'static Table, row: &[Param<'_>]) {
        self.current.put_row(table, row.iter().map(storable_value).collect());
    }

    pub(super) fn delete_rows(
        &mut self,
        table: &'static Table,
        by: &'static [&'static str],
        values: &[Param<'_>],
    ) {
        let shape = LookupShape { table, by, range: None };
        let values: Vec<_> = values.iter().map(storable_value).collect();
        self.current.remove_rows(shape, &values);
        // What is new has no stored rows, but a job before this one may have made some.
        self.current.removed.entry(shape).or_default().insert(values);
    }

    pub(super) fn record_new_id(&mut self, id: &str) {
        self.new_ids.insert(id.to_owned());
    }

    pub(super) fn record_query(&mut self) {
        self.needs_query = true;
    }

    /// What is to be stored, of the jobs that are done. What was fetched before is out of date once it
    /// is stored.
    pub(super) fn take_done(&mut self) -> Layer {
        let layer = std::mem::take(&mut self.done);
        self.fetched.clear();
        self.new_ids.clear();
        layer
    }

    /// What is to be stored of the job that runs.
    pub(super) fn take_current(&mut self) -> Layer {
        self.fetched.clear();
        self.new_ids.clear();
        std::mem::take(&mut self.current)
    }

    fn is_new(&self, values: &[Value]) -> bool {
        has_any(values, &self.new_ids)
    }
}

fn has_any(values: &[Value], ids: &HashSet<String>) -> bool {
    values.iter().any(|value| matches!(value, Value::Text(text) if ids.contains(text)))
}

/// The columns of a row that a select hands over.
pub(super) fn pass_rows(
    select: &'static Select,
    rows: &[&StoredRow],
    keep: Keep<'_>,
) -> StoreResult<()> {
    let positions: Vec<_> =
        select.columns.iter().filter_map(|name| select.table.column_position(name)).collect();
    rows.iter().try_for_each(|row| keep(&Projection { row, positions: &positions }))
}

struct Projection<'row> {
    row: &'row [Value],
    positions: &'row [usize],
}

impl Projection<'_> {
    fn get(&self, column: usize) -> Option<&Value> {
        self.positions.get(column).and_then(|at| self.row.get(*at))
    }
}

/// What a column holds that holds something else than its table says.
const OTHER_TYPE: StoreError = StoreError::Inconsistent("a column has another type");

impl Row for Projection<'_> {
    fn text(&self, column: usize) -> StoreResult<&str> {
        match self.get(column) {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(OTHER_TYPE),
        }
    }

    fn bytes(&self, column: usize) -> StoreResult<&[u8]> {
        match self.get(column) {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            _ => Err(OTHER_TYPE),
        }
    }

    fn integer(&self, column: usize) -> StoreResult<i64> {
        match self.get(column) {
            Some(Value::Integer(number)) => Ok(*number),
            _ => Err(OTHER_TYPE),
        }
    }

    fn value(&self, column: usize) -> StoreResult<Option<Value>> {
        Ok(self.get(column).cloned())
    }
}

fn key_of(table: &Table, row: &[Value]) -> Vec<Value> {
    let positions = table.key.iter().filter_map(|name| table.column_position(name));
    positions.filter_map(|at| row.get(at).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::writes::JobTables;
    use super::*;
    use crate::Transaction;
    use crate::schema::{LINKS, RESOURCES};
    use crate::select::{DOCUMENT, REFERRERS};
    use Param::Text;
    use ginnel_api::id::Ids;

    fn texts<'a>(rows: impl IntoIterator<Item = &'a StoredRow>, column: usize) -> Vec<String> {
        let text = |row: &StoredRow| match &row[column] {
            Value::Text(text) => text.clone(),
            other => format!("{other:?}"),
        };
        rows.into_iter().map(text).collect()
    }

    /// Runs a job; gives how it ended and what it lacks.
    fn job(
        overlay: &mut Overlay,
        is_made: bool,
        work: impl FnOnce(&mut Overlay),
    ) -> (JobEnd, HashSet<Lookup>) {
        let mut unfetched = HashSet::new();
        overlay.begin_job();
        work(overlay);
        (overlay.end_job(is_made, &mut unfetched), unfetched)
    }

    fn link(overlay: &mut Overlay, from: &str, to: &str) {
        overlay.put_row(&LINKS, &[Text(from), Text("role"), Text(to)]);
    }

    fn referrers(overlay: &mut Overlay) -> Vec<String> {
        let rows = overlay.select_rows(&REFERRERS, &[Text("to"), Text("role")]).unwrap();
        texts(rows, 0)
    }

    #[test]
    fn what_was_not_fetched_is_asked_for_and_then_found() {
        let mut overlay = Overlay::default();
        let read = |overlay: &mut Overlay| {
            overlay
                .select_rows(&DOCUMENT, &[Text("note"), Text("note_1")])
                .map(|rows| texts(rows, 2))
        };

        let mut found = None;
        let (end, unfetched) = job(&mut overlay, false, |it| found = Some(read(it)));
        assert!(matches!(found, Some(Err(StoreError::Unfetched))));
        assert_eq!((end, unfetched.len()), (JobEnd::Unfetched, 1));

        for lookup in unfetched {
            let row = ["note", "note_1", "body"].map(|text| Value::Text(text.to_owned()));
            overlay.set_fetched(lookup, vec![row.to_vec()]);
        }
        let (end, _) = job(&mut overlay, true, |it| found = Some(read(it)));
        assert_eq!((found.unwrap().unwrap(), end), (vec!["body".to_owned()], JobEnd::Done));
    }

    #[test]
    fn later_jobs_see_what_those_before_have_made_and_not_what_was_refused() {
        let mut overlay = Overlay::default();
        let lookup = Lookup::from_select(&REFERRERS, &[Text("to"), Text("role")]);
        let stored = ["a", "role", "to"].map(|text| Value::Text(text.to_owned()));
        overlay.set_fetched(lookup, vec![stored.to_vec()]);

        job(&mut overlay, true, |it| link(it, "b", "to"));
        job(&mut overlay, false, |it| link(it, "refused", "to"));
        let mut seen = Vec::new();
        job(&mut overlay, true, |it| {
            it.delete_rows(&LINKS, &["from_id"], &[Text("a")]);
            link(it, "c", "to");
            seen.push(referrers(it));
            it.delete_rows(&LINKS, &["from_id"], &[Text("b")]);
            seen.push(referrers(it));
        });
        job(&mut overlay, true, |it| {
            link(it, "a", "to");
            seen.push(referrers(it));
        });

        assert_eq!(seen, [vec!["c", "b"], vec!["c"], vec!["c", "a"]]);
        let layer = overlay.take_done();
        assert_eq!(texts(layer.rows["links"].rows.values(), 0), ["a", "c"]);
        assert_eq!(layer.removed.values().map(HashSet::len).sum::<usize>(), 2);
    }

    #[test]
    fn a_new_identifier_is_neither_fetched_nor_removed() {
        let mut overlay = Overlay::default();

        let (end, _) = job(&mut overlay, true, |it| {
            it.record_new_id("note_1");
            it.put_row(&RESOURCES, &[Text("note"), Text("note_1"), Text("{}")]);
            it.delete_rows(&LINKS, &["from_id", "role"], &[Text("note_1"), Text("role")]);
            link(it, "note_1", "to");
            let found = it.select_rows(&DOCUMENT, &[Text("note"), Text("note_1")]).unwrap();
            assert_eq!(texts(found, 2), ["{}"]);
        });
        let layer = overlay.take_done();

        assert_eq!(end, JobEnd::Done);
        assert!(layer.removed.is_empty());
        assert_eq!(layer.rows.len(), 2);
    }

    #[test]
    fn a_later_job_removes_what_one_before_has_made_under_a_new_identifier() {
        let mut overlay = Overlay::default();
        job(&mut overlay, true, |it| {
            it.record_new_id("note_1");
            link(it, "note_1", "to");
        });

        job(&mut overlay, true, |it| it.delete_rows(&LINKS, &["from_id"], &[Text("note_1")]));

        let layer = overlay.take_done();
        assert_eq!(texts(layer.rows["links"].rows.values(), 0), [""; 0]);
        assert!(layer.removed.is_empty(), "nothing is stored of it");
    }

    #[test]
    fn what_a_change_does_with_each_of_many_is_fetched_together() {
        let overlay = RefCell::new(Overlay::default());
        overlay.borrow_mut().begin_job();
        let (tables, ids) = (JobTables::on_overlay(&overlay), Ids::default());
        let change = Transaction::new(&tables, &ids);

        let ended =
            change.for_each(&["note_1", "note_2", "note_3"], |id| change.exists(id).map(drop));

        assert!(matches!(ended, Err(StoreError::Unfetched)));
        let mut unfetched = HashSet::new();
        overlay.borrow_mut().end_job(false, &mut unfetched);
        assert_eq!(unfetched.len(), 3);
    }
}
